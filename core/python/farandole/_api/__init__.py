"""The parts that plugins offer to users: operations, handles, process sets, objects, words and errors."""
