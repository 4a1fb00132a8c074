"""The memory manager. plan.py and schedule.py hold its two values; planning.py goes from a net to proved schedules."""
