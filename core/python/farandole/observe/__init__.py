"""Tools for running and finished jobs: inspect, the live page and metrics, the report, timelines, doctor.

They read flight recorders, /proc and timelines:

    records             parses a file of a rank's flight recorder; pure
    recorders, jobs     find and read these files, and the jobs of this user
    processes, tails    read /proc about a rank; read recorders and /proc repeatedly
    diagnosis           decides which rank holds the job up at one moment; pure
    step_times, stragglers, slow_links, snapshot, watch     the launcher's watch over a running job
    inspect, stacks                                         `farandole inspect`
    live                the page in the browser, metrics, and scalars for TensorBoard
    timeline, report    merge and analyse traces
    waits               computes which rank waits for which, and step times, for live and report; pure
    doctor              checks this machine, or several
"""
