"""Models for other machines and engines: export and its check, bench, doctor, jobs on Ray."""
