"""The command line of bertpt: parse, build a config, call one function, print."""
