"""The own code of supervisors in a simulated world: seeded schedules, virtual time, and an auditor."""
