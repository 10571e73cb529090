"""The supervisors' own code in a simulated world: seeded schedules, virtual time, and an auditor that knows the promises."""
