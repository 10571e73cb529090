"""The own code of supervisors in a simulated world: seeded schedules, virtual time, an auditor that knows the promises."""
