"""Finds late, stuck and deadlocked ranks, and writes the warnings and errors about them.

    core --await_news--> thread --> Diagnosis --> warn, ask_ranks, reply, end_world --> core

    facts      types of the core's reports
    delays     which late ranks to warn of
    deadlocks  ranks that wait for each other for ever
    sentences  the text of warnings and errors
    stacks     takes and parses stacks in faulthandler's format
    diagnosis  the state of one rank: takes news, calls the core
    thread     the thread that runs it

All modules except `thread` are pure, or take the core and the clock as arguments.
"""
