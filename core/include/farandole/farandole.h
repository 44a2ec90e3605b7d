/* The C interface of the core, which the native parts of plugins use. They use no other part of the core.
 *
 * Plugins do not link to the core. The Python module `farandole._core` exports frd_get_api; a plugin receives its
 * address, calls it once, and keeps the table. The table only grows, so a plugin that was built against an older header
 * works with a newer core. The plugin checks that `abi` is equal and that `struct_size` covers the functions it calls.
 *
 * Conventions. All structs begin with struct_size, which the caller sets to the sizeof that it was compiled with, in
 * results before the call. Fields that the caller does not know count as zero, or are not written; elements of an array
 * lie struct_size apart. A new field of a struct lies behind the sizeof of the last release. Enumerations are int32_t.
 * No function lets a C++ exception out. Unless said otherwise a function may be called from any thread, does not block
 * on other ranks, and returns FRD_OK or a code. last_error then returns the message, of the calling thread and until
 * its next call.
 *
 * Threads and life. The core calls done(argument, code, message, event) exactly once for every accepted operation, in
 * the thread that completes it, and holds no lock meanwhile. done may enqueue; it must not block and must not run
 * Python. Memory that the caller passes must stay valid until then. */
#ifndef FARANDOLE_FARANDOLE_H_
#define FARANDOLE_FARANDOLE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FRD_ABI 1u

/* Codes. */
#define FRD_OK 0
#define FRD_INVALID 1         /* a call that is wrong whatever the other ranks ask for */
#define FRD_MISMATCH 2        /* the ranks disagree about one operation; the job goes on */
#define FRD_PEER_LOST 3       /* a rank died or left; nothing more can complete until shutdown and init */
#define FRD_DEADLINE 4        /* a live rank did not come in time; as above */
#define FRD_NOT_INITIALIZED 5 /* before init, after shutdown, or in a forked child */
#define FRD_INTERNAL 6        /* the system refused, or a bug of the core */
#define FRD_IN_PROGRESS 7     /* frd_api.wait and poll only: not done yet */

/* Operations. */
#define FRD_ALLREDUCE 0     /* every rank gets the reduction of all inputs */
#define FRD_ALLGATHER 1     /* every rank gets all inputs, joined along the first dimension, which may differ by rank */
#define FRD_BROADCAST 2     /* every rank gets the root's input */
#define FRD_BARRIER 3       /* completes when all ranks have submitted it */
#define FRD_ALLTOALL 4      /* every rank gets its part of all inputs, joined along the first dimension */
#define FRD_REDUCESCATTER 5 /* every rank gets equally many rows of the reduction, the first ones perhaps one more */
/* These take no tensors, and concern all ranks of the job, whatever process_set says. */
#define FRD_JOIN 6 /* this rank has no more data, and contributes zeros until all ranks have joined */
/* Without a name all ranks of the job call these two, in one order. With a name only the members of the set do, at any
 * time: the name pairs their calls, so groups that are changed at the same time have different names. */
#define FRD_ADD_PROCESS_SET 7 /* makes a process set of `ranks`; output 0 is its id, which is the same on all ranks */
#define FRD_REMOVE_PROCESS_SET 8 /* removes the set whose id is ranks[0] */

/* Element types. */
#define FRD_UINT8 0
#define FRD_INT8 1
#define FRD_UINT16 2
#define FRD_INT16 3
#define FRD_INT32 4
#define FRD_INT64 5
#define FRD_FLOAT16 6
#define FRD_BFLOAT16 7
#define FRD_FLOAT32 8
#define FRD_FLOAT64 9
#define FRD_BOOL 10
#define FRD_UINT32 11
#define FRD_UINT64 12
#define FRD_COMPLEX64 13  /* sum and average only */
#define FRD_COMPLEX128 14 /* as above */

/* Reductions. */
#define FRD_SUM 0
#define FRD_AVERAGE 1 /* sum / size; integers: the exact sum, divided and truncated */
#define FRD_MIN 2
#define FRD_MAX 3
#define FRD_PRODUCT 4
#define FRD_ADASUM 5 /* allreduce of floats: sums what is orthogonal, averages what is parallel */

/* Where tensors lie. */
#define FRD_HOST 0
#define FRD_CUDA 1 /* a CUDA device's memory; its driver is opened when the first such tensor comes */

/* The rank of this process, and how it reaches the others. */
typedef struct frd_world {
  uint32_t struct_size;
  int32_t rank; /* 0 <= rank < size */
  int32_t size;
  const char* store;  /* endpoint of rank 0, "unix:<abstract name>" or "tcp:<host>:<port>"; unused when size is 1 */
  const uint8_t* key; /* the job's 32 secret bytes; unused when size is 1 */
} frd_world;

/* When the core may use tensors on a device. BY_EVENT: each tensor after its ready_event. AFTER_ALL: all tensors after
 * all work that this process has submitted to their device so far, in all streams. AFTER_ALL is for callers without a
 * stream; ready_event is NULL then. Drivers before CUDA 12.5 cannot mark that work, so there the call waits for the
 * device. */
#define FRD_READY_BY_EVENT 0
#define FRD_READY_AFTER_ALL 1

typedef struct frd_tensor {
  uint32_t struct_size;
  int32_t dtype;
  const void* input;
  void* output; /* may equal input; must be NULL for allgather, alltoall and reducescatter, whose results the core
                  allocates in host memory */
  const int64_t* shape;
  int32_t dimension_count; /* 0: a scalar */
  int32_t device;          /* FRD_HOST or FRD_CUDA; all tensors of a request lie on one device, inputs and outputs */
  void* ready_event;       /* of the device (CUevent): the input is valid, and the output may be written, once it has
                              happened; recorded before the call and valid until done; NULL: now */
} frd_tensor;

typedef struct frd_request {
  uint32_t struct_size;
  int32_t operation;
  const frd_tensor* tensors;
  uint32_t tensor_count; /* several: a grouped call, completed together; 0 for a barrier */
  int32_t reduce;        /* allreduce, reducescatter */
  int32_t root;          /* broadcast: a rank of the job, in the set */
  const char* name;      /* pairs this call with those of the other ranks; NULL: paired by order among unnamed calls */
  double prescale;       /* allreduce, reducescatter: factors before and after the reduction; 1.0 for none */
  double postscale;
  void* stream; /* ignored: the core copies in streams of its own, and ready_event of the tensors and `event` of done
                  order them with the caller's */
  /* `event` (CUevent) has happened when the outputs may be read and, whatever the code, no work uses the tensors any
   * more; NULL: now. It is valid until done returns, and until release of the operation: let your stream wait for it.
   * `done` may be NULL; then the operation ends when the outputs may be read. */
  void (*done)(void* argument, int32_t code, const char* message, void* event);
  void* done_argument;
  int32_t process_set;   /* 0: all ranks */
  uint32_t split_count;  /* alltoall: tensor_count * size of the set, or 0 for equal parts */
  const int64_t* splits; /* alltoall: rows for each member of the set, tensor by tensor */
  const int64_t* ranks;  /* add_process_set: ascending; with a name this rank is one of them */
  uint32_t rank_count;
  const char* site; /* the place of the call in the user's program, for messages: "train.py:12"; may be NULL */
  int32_t ready;    /* FRD_READY_..., of tensors on a device */
  /* 1: done is called only once the outputs may be read and no work uses the tensors any more, so its event is NULL.
   * For callers that cannot let a stream wait for an event. After a failure, done waits at most 5 seconds for a broken
   * device that still uses its tensors. */
  int32_t done_when_readable;
} frd_request;

/* A result whose memory the core has allocated. */
typedef struct frd_output {
  uint32_t struct_size;
  int32_t dtype;
  void* data;
  size_t size_bytes;
  const int64_t* shape;
  int32_t dimension_count;
} frd_output;

/* A message between two ranks, which no other rank takes part in. The receiver gets the messages of one sender with one
 * process set and tag in the order in which they were sent. Both ends say the same dtype and size_bytes; else the
 * receive ends with FRD_MISMATCH. */
#define FRD_ANY_SOURCE (-1)
typedef struct frd_message {
  uint32_t struct_size;
  int32_t dtype;
  void* data; /* in host memory; belongs to the core until the transfer has ended */
  size_t size_bytes;
  int32_t peer;        /* the target, or the source: a rank of the job, which may be this one; or FRD_ANY_SOURCE */
  int32_t process_set; /* has both ranks; 0: all ranks */
  uint64_t tag;
} frd_message;

typedef struct frd_transfer frd_transfer; /* a send or a receive that has begun */

typedef struct frd_operation frd_operation;
typedef struct frd_memory frd_memory;

typedef struct frd_api {
  uint32_t struct_size;
  uint32_t abi;

  const char* (*last_error)(void);

  /* Joins the world. Blocks until all ranks have joined, or the start timeout. No-op when this process has joined. */
  int32_t (*init)(const frd_world* world);
  /* Leaves the world; operations in flight end with FRD_NOT_INITIALIZED. No-op when not initialized. */
  void (*shutdown)(void);
  int32_t (*is_initialized)(void); /* 1 or 0 */
  int32_t (*rank)(void);           /* -1 when not initialized */
  int32_t (*size)(void);

  /* Begins a collective. On FRD_OK the caller owns *operation and must release it once; `operation` may be NULL when
   * done is given. */
  int32_t (*enqueue)(const frd_request* request, frd_operation** operation);
  /* FRD_IN_PROGRESS, or how the operation ended. */
  int32_t (*poll)(frd_operation* operation);
  /* Blocks up to timeout_ms (negative: without limit) and drives the progress meanwhile; returns as poll. */
  int32_t (*wait)(frd_operation* operation, int64_t timeout_ms);
  /* Result `index` of an operation that ended with FRD_OK, one per tensor where the core allocates them; valid until
   * release. alltoall has further results behind these: per tensor, the rows from each member (int64). join: the rank
   * that joined last. */
  int32_t (*output)(frd_operation* operation, uint32_t index, frd_output* output);
  /* Releases the handle. The operation goes on if it has not ended. */
  void (*release)(frd_operation* operation);
  /* Begins a collective and blocks until it has ended, as wait without a limit. It is faster than enqueue and wait,
   * because this thread does all the work. `done` may be NULL, and so may `operation` when no output is wanted. */
  int32_t (*run)(const frd_request* request, frd_operation** operation);

  /* The memory of result `index` of an operation that ended with FRD_OK, aligned to 64 bytes. The caller may write to
   * it, and must drop it once; it is valid until then, even after release and shutdown. NULL: no such result. */
  frd_memory* (*keep)(frd_operation* operation, uint32_t index);
  void (*drop)(frd_memory* memory);

  /* For a caller that finds out, before it has a request, that its call cannot be made. Fails the call of that name, or
   * the set's next unnamed one, on the other ranks, whose errors name this rank, the site and `why`. `name` and `site`
   * as in frd_request. */
  int32_t (*refuse)(int32_t process_set, const char* name, const char* site, const char* why);

  /* Begin a transfer. On FRD_OK the caller owns *transfer and must end it once. A small message may be sent before its
   * receive has begun. */
  int32_t (*send)(const frd_message* message, frd_transfer** transfer);
  int32_t (*receive)(const frd_message* message, frd_transfer** transfer);
  /* As poll and wait of operations; a negative timeout_ms is the limit of the set's waits, if it has one. */
  int32_t (*poll_transfer)(frd_transfer* transfer);
  int32_t (*wait_transfer)(frd_transfer* transfer, int64_t timeout_ms);
  /* The rank whose message a receive that ended with FRD_OK has taken. */
  int32_t (*source)(frd_transfer* transfer);
  /* Releases the handle. If the transfer has not ended, it is given up: its memory is not touched any more, and the
   * other rank may wait in vain. */
  void (*end_transfer)(frd_transfer* transfer);

  /* As run without `done`, but it ends with FRD_DEADLINE when the limit of the set's waits is over, which a group of
   * torch.distributed has as its timeout. The operation goes on then: the memory must stay valid until poll says that
   * it has ended. *operation is NULL where nothing is left to do: the caller gets it, and must release it, with FRD_OK
   * if the operation has results of the core's, and with FRD_DEADLINE if it goes on. */
  int32_t (*run_within_limit)(const frd_request* request, frd_operation** operation);
} frd_api;

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const frd_api* frd_get_api(void);

#ifdef __cplusplus
}
#endif

#endif /* FARANDOLE_FARANDOLE_H_ */
