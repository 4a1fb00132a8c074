"""From a file and options to what is planned and run: the rules that `plan` and `train` share."""
