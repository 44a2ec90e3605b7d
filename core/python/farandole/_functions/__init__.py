"""`farandole.run`: a function as the ranks of a job, called from a script or a notebook.

    call      the public function
    parcel    the function and its arguments as a file that each rank reads
    blame     names the variable or argument that cannot be pickled       (pure)
    starter   `farandole run` as a child process; its output for the caller
    rank      the program of a rank: reads the parcel, calls, writes an outcome
    outcome   a result or an exception as a file that the caller reads

The caller and its ranks share a folder that only their user can open. The launcher is a process of its own, so this
package does not import it.
"""
