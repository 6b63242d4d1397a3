"""Models on their way to other machines: export and its check, bench, doctor, jobs on Ray."""
