"""Many simulated devices over real connections, for rehearsals and load tests."""
