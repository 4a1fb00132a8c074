"""An experimenter's work: policies compared, sizes sought. They return values and print nothing."""
