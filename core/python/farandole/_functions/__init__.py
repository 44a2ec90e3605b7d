"""`farandole.run`: a function as the ranks of a job, called from a script or a notebook.

    call           the public function
    arguments      its arguments as the spec of a job                          (pure)
    call_payload   the function and its arguments as bytes that each rank reads
    pickle_errors  names the variable or argument that cannot be pickled       (pure)
    rank           the program of a rank: reads the payload, calls, writes an outcome
    outcome        a result or an exception as bytes that the caller reads

    caller --- memory of a call --> launcher --------------------> rank     on this host: the rank opens that memory
      ^                                |    --- frames --> agent --> rank     elsewhere: the agent has memory like it
      +------- pipe of outcomes -------+<-------------- pipe --------+

No file has a name, so nothing stays behind when processes are killed. `farandole.launch.job` runs the launcher.
"""
