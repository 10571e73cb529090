"""Names that containers and manifests of version 0.1 have: kept as long as those may run."""
