"""Tools for running and finished jobs: inspect, the live page and metrics, the report, timelines, doctor.

Its sources are flight recorders, /proc and timelines:

    records             a file of a rank's flight recorder -> Recording; pure
    recorders, jobs     where these files are, and the jobs of this user
    processes, tails    what /proc says of a rank; recorders and /proc again and again
    diagnosis           ranks at one moment -> who holds the job up; pure
    step_times, stragglers, slow_links, snapshot, watch     the launcher's watch over a job that runs
    inspect, stacks                                         `farandole inspect`
    live                the page in the browser, metrics, and scalars for TensorBoard
    timeline, report    traces: merged, and analysed
    waits               who waits for whom, and how long steps take, for live and report; pure
    doctor              checks of this machine, or of several
"""
