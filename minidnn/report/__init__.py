"""Tables, pictures and pages of the values that study/ returns: one file per verb."""
