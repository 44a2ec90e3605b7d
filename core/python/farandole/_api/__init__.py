"""The parts that plugins offer to users: operations, handles, process sets, objects, arguments and errors."""
