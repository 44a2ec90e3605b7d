"""Jobs that fail, seen from outside: who is blamed, the exit code, the facts that the user reads, and what is left.

A *case* (case.py) is one failure as data: the program of the ranks and what it does wrong, or a wrong command line, or
what the user does to the launcher meanwhile; and what must come of it. The cases stand in tables, a row each:

    ranks.py       ranks that raise, exit, are killed, run out of memory; before, in and after `init`; two at once
    users.py       signals for the launcher, full and closed streams, processes left behind, lines like ours
    refusals.py    what cannot be started: missing programs, wrong options, hosts that are none

A case runs in one or more *ways* (ways.py), as users start jobs:

    command        `farandole run -np 3 train.py`
    hosts          the same over two hosts of a lab: rank 0 on h0, the others on h1
    library        a script that calls `farandole.launch.run(spec)`, with the same program
    script         a script that calls `farandole.run(train, np=3)`
    thread         the same in a thread, while another thread runs another job
    asyncio        the same in a coroutine, by `asyncio.to_thread`
    script-hosts   the script, with `hosts="h0:1,h1:2"`

Those of a function are also calls on a Ray or a Spark that starts once for all of them (clusters.py).

A case is judged (judge.py) by what any launcher must offer: the code; a sentence of its own that has "rank 1 on h1";
facts as plain text ("SIGKILL", "exit code 7", `train.py", line 20`); a caller whose signal handlers, descriptors and
children are as before; and an empty machine afterwards: no process, no shared memory, no file in TMPDIR or
XDG_RUNTIME_DIR, no flight record. Sentences are never compared as wholes: their wording is free, their facts are not.
Nothing here imports the launcher, so any other one can be judged by it.

To add a case, add a row. `say` is looked for in the launcher's own lines only (through `farandole.run`: in the message
of the exception), `show` in all that the user sees, `hide` nowhere; `blame` has the ranks of which one must be named:
where two fail at once, either is right. A row begins with the program in which `fail` happens (case.py):

    steps          joins the job, then sums in each step; `fail` comes in step 5 on rank 1
    two, every     the same, on ranks 1 and 2, and on all
    alone          never imports Farandole; `fail` comes at once on rank 1, and the others sleep
    each, joins    `fail` is the whole program, before which `joins` imports farandole.numpy

Ranks say that they have begun by a file `ready.<rank>` with their process id. `do` is what the user does meanwhile, in
words: `ready` waits for those files; `INT`, `TERM`, `KILL`, ... signal the launcher; `all-INT` signals its process
group, as a terminal does; `KILL:1` signals rank 1; `gone:1` waits until the launcher has reaped it; `pause` waits 0.4
s; `crash` kills all processes of h1.

The default run has the rows with `quick`, in that one way; FARANDOLE_LONG=1 has all rows in all their ways, and in
`library` those that need nothing but a command. Several
cases run side by side (run.py), each in a folder of its own, those on hosts each in a lab of its own.
"""
