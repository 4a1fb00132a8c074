"""Tables, pictures and pages of results, one file per verb."""
