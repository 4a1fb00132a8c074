"""An experimenter's work: policies compared, sizes sought, papers reproduced. They return values and print nothing."""
