"""Execute: the device contract, the machine that replays a schedule, and the simulator."""
