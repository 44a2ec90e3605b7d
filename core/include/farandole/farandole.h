/* The C interface of the core, for the native parts of plugins. They use no other part of the core.
 *
 * Plugins do not link to the core. The Python module `farandole._core` exports frd_get_api. A plugin receives the
 * address of frd_get_api, calls it once, and keeps the table. The table only grows, so a plugin that was built against
 * an older header works with a newer core. The plugin checks that `abi` is equal to its own FRD_ABI and that
 * `struct_size` covers the functions that the plugin calls.
 *
 * Struct conventions. Every struct begins with struct_size. The caller sets it, before the call, to the sizeof that it
 * was compiled with; this includes structs that receive results. The core treats input fields beyond struct_size as
 * zero and does not write output fields beyond it. Elements of an array are struct_size bytes apart. A new field is
 * added beyond the sizeof of the last release. Enumerations are int32_t.
 *
 * Call conventions. No function throws a C++ exception. Unless stated otherwise, a function may be called from any
 * thread, does not block on other ranks, and returns FRD_OK or an error code. After an error, last_error returns the
 * message; each thread has its own message, which is valid until that thread's next call.
 *
 * Threads and lifetimes. The core calls done(argument, code, message, event) exactly once for every accepted operation,
 * on the thread that completes the operation and without holding a lock. `done` may enqueue operations, but must not
 * block or run Python. Memory that the caller passes must stay valid until `done` is called. */
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
#define FRD_INVALID 1         /* the call is wrong in itself, regardless of the other ranks */
#define FRD_MISMATCH 2        /* the ranks disagree about one operation; the job continues */
#define FRD_PEER_LOST 3       /* a rank died or left; nothing more can complete until shutdown and init */
#define FRD_DEADLINE 4        /* a live rank did not arrive in time; consequences as for FRD_PEER_LOST */
#define FRD_NOT_INITIALIZED 5 /* before init, after shutdown, or in a forked child */
#define FRD_INTERNAL 6        /* a system call failed, or the core has a bug */
#define FRD_IN_PROGRESS 7     /* returned only by frd_api.wait and poll: not done yet */

/* Operations. */
#define FRD_ALLREDUCE 0     /* every rank gets the reduction of all inputs */
#define FRD_ALLGATHER 1     /* every rank gets all inputs, joined along the first dimension, which may differ by rank */
#define FRD_BROADCAST 2     /* every rank gets the root's input */
#define FRD_BARRIER 3       /* completes when all ranks have submitted it */
#define FRD_ALLTOALL 4      /* every rank gets its part of all inputs, joined along the first dimension */
#define FRD_REDUCESCATTER 5 /* every rank gets an equal share of the rows; the first ranks get one more if needed */
/* The following take no tensors and concern all ranks of the job, regardless of process_set. */
#define FRD_JOIN 6 /* this rank has no more data, and contributes zeros until all ranks have joined */
/* Without a name, all ranks of the job make these two calls, in the same order. With a name, only the members of the
 * set make the call, at any time. The name pairs their calls, so sets that are changed at the same time need different
 * names. */
#define FRD_ADD_PROCESS_SET 7    /* creates a process set of `ranks`; output 0 is its id, equal on all ranks */
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
#define FRD_AVERAGE 1 /* sum / size; for integers, the exact sum is divided and truncated */
#define FRD_MIN 2
#define FRD_MAX 3
#define FRD_PRODUCT 4
#define FRD_ADASUM 5 /* allreduce of floats only: adds orthogonal gradients and averages parallel ones */

/* Locations of tensors. */
#define FRD_HOST 0
#define FRD_CUDA 1 /* CUDA device memory; the driver library is opened for the first such tensor */

/* The rank of this process, and how it reaches the other ranks. */
typedef struct frd_world {
  uint32_t struct_size;
  int32_t rank; /* 0 <= rank < size */
  int32_t size;
  const char* store;  /* endpoint of rank 0, "unix:<abstract name>" or "tcp:<host>:<port>"; unused when size is 1 */
  const uint8_t* key; /* the job's 32 secret bytes; unused when size is 1 */
} frd_world;

/* When the core may use tensors on a device.
 * BY_EVENT: each tensor once its ready_event has happened.
 * AFTER_ALL: all tensors once the work that this process has submitted to their device so far, in all streams, is done.
 * For callers without a stream; ready_event is NULL. Drivers before CUDA 12.5 cannot mark that work, so the call waits
 * for the device instead. */
#define FRD_READY_BY_EVENT 0
#define FRD_READY_AFTER_ALL 1

typedef struct frd_tensor {
  uint32_t struct_size;
  int32_t dtype;
  const void* input;
  void* output; /* may equal input; must be NULL for allgather, alltoall and reducescatter: the core allocates their
                  results in host memory */
  const int64_t* shape;
  int32_t dimension_count; /* 0: a scalar */
  int32_t device;          /* FRD_HOST or FRD_CUDA; all inputs and outputs of a request lie on one device */
  void* ready_event;       /* device event (CUevent): once it has happened, the input is valid and the output may be
                              written; recorded before the call and valid until done; NULL: no wait */
} frd_tensor;

typedef struct frd_request {
  uint32_t struct_size;
  int32_t operation;
  const frd_tensor* tensors;
  uint32_t tensor_count; /* more than 1: a grouped call, completed together; 0 for a barrier */
  int32_t reduce;        /* allreduce, reducescatter */
  int32_t root;          /* broadcast: a rank of the job, in the set */
  const char* name;      /* pairs this call with those of the other ranks; NULL: pairs by order among unnamed calls */
  double prescale;       /* allreduce, reducescatter: factors before and after the reduction; 1.0 for none */
  double postscale;
  void* stream; /* ignored: the core copies in its own streams; ready_event of the tensors and `event` of `done` order
                  those copies with the caller's streams */
  /* Once `event` (CUevent) has happened, the outputs may be read and, whatever the code, no work uses the tensors any
   * more. NULL: this is already so. The event stays valid until `done` has returned and the operation has been
   * released, so the caller's stream can wait for it. `done` may be NULL; then the operation ends when the outputs may
   * be read. */
  void (*done)(void* argument, int32_t code, const char* message, void* event);
  void* done_argument;
  int32_t process_set;   /* 0: all ranks */
  uint32_t split_count;  /* alltoall: tensor_count * size of the set, or 0 for equal parts */
  const int64_t* splits; /* alltoall: rows for each member of the set, tensor by tensor */
  const int64_t* ranks;  /* add_process_set: ascending; includes this rank if the call has a name */
  uint32_t rank_count;
  const char* site; /* source location of the call, for messages: "train.py:12"; may be NULL */
  int32_t ready;    /* FRD_READY_..., for tensors on a device */
  /* 1: `done` is called only once the outputs may be read and no work uses the tensors any more, so its event is NULL.
   * For callers that cannot make a stream wait for an event. After a failure, the core waits at most 5 seconds for a
   * broken device that still uses the tensors before it calls `done`. */
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

/* A message between two ranks; no other rank takes part. Messages with the same sender, process set and tag arrive in
 * the order in which they were sent. Both ends must give the same dtype and size_bytes; otherwise the receive ends with
 * FRD_MISMATCH. */
#define FRD_ANY_SOURCE (-1)
typedef struct frd_message {
  uint32_t struct_size;
  int32_t dtype;
  void* data; /* in host memory; owned by the core until the transfer has ended */
  size_t size_bytes;
  int32_t peer;        /* target or source: a rank of the job, possibly this one; a receive may use FRD_ANY_SOURCE */
  int32_t process_set; /* contains both ranks; 0: all ranks */
  uint64_t tag;
} frd_message;

typedef struct frd_transfer frd_transfer; /* a send or a receive that has begun */

typedef struct frd_operation frd_operation;
typedef struct frd_memory frd_memory;

typedef struct frd_api {
  uint32_t struct_size;
  uint32_t abi;

  const char* (*last_error)(void);

  /* Joins the world. Blocks until all ranks have joined or the start timeout expires. No-op if already joined. */
  int32_t (*init)(const frd_world* world);
  /* Leaves the world; operations in flight end with FRD_NOT_INITIALIZED. No-op when not initialized. */
  void (*shutdown)(void);
  int32_t (*is_initialized)(void); /* 1 or 0 */
  int32_t (*rank)(void);           /* -1 when not initialized */
  int32_t (*size)(void);

  /* Begins a collective. On FRD_OK the caller owns *operation and must release it once; `operation` may be NULL when
   * done is given. */
  int32_t (*enqueue)(const frd_request* request, frd_operation** operation);
  /* Returns FRD_IN_PROGRESS, or the code with which the operation ended. */
  int32_t (*poll)(frd_operation* operation);
  /* Blocks for up to timeout_ms (negative: no limit) and drives progress meanwhile. Returns the same codes as poll. */
  int32_t (*wait)(frd_operation* operation, int64_t timeout_ms);
  /* Gets result `index` of an operation that ended with FRD_OK. It is valid until release.
   * Operations whose results the core allocates: one result per tensor.
   * alltoall: after these, one more result per tensor, the number of rows from each member (int64).
   * join: the rank that joined last. */
  int32_t (*output)(frd_operation* operation, uint32_t index, frd_output* output);
  /* Releases the handle. An operation that has not ended continues. */
  void (*release)(frd_operation* operation);
  /* Begins a collective and blocks until it has ended, like wait without a limit. Faster than enqueue and wait, because
   * the calling thread does all the work. `done` may be NULL, and `operation` too if no output is wanted. */
  int32_t (*run)(const frd_request* request, frd_operation** operation);

  /* Returns the memory of result `index` of an operation that ended with FRD_OK, aligned to 64 bytes, or NULL if there
   * is no such result. The caller may write to the memory and must drop it once. It stays valid until then, even after
   * release and shutdown. */
  frd_memory* (*keep)(frd_operation* operation, uint32_t index);
  void (*drop)(frd_memory* memory);

  /* For a caller that finds, before it has a request, that it cannot make its call. Fails the call with that name, or
   * the set's next unnamed call, on the other ranks; their errors name this rank, the site and `why`. `name` and `site`
   * are as in frd_request. */
  int32_t (*refuse)(int32_t process_set, const char* name, const char* site, const char* why);

  /* Begin a transfer. On FRD_OK the caller owns *transfer and must call end_transfer once. The send of a small message
   * may end before its receive has begun. */
  int32_t (*send)(const frd_message* message, frd_transfer** transfer);
  int32_t (*receive)(const frd_message* message, frd_transfer** transfer);
  /* Like poll and wait for operations, but a negative timeout_ms means the wait limit of the set, if there is one. */
  int32_t (*poll_transfer)(frd_transfer* transfer);
  int32_t (*wait_transfer)(frd_transfer* transfer, int64_t timeout_ms);
  /* Returns the sender of the message that a receive has taken. The receive must have ended with FRD_OK. */
  int32_t (*source)(frd_transfer* transfer);
  /* Releases the handle. A transfer that has not ended is cancelled: its memory is not touched any more, and the other
   * rank may wait in vain. */
  void (*end_transfer)(frd_transfer* transfer);

  /* Like run without `done`, but returns FRD_DEADLINE once the wait limit of the set has passed (in torch.distributed,
   * the timeout of the group). In that case the operation continues, and its memory must stay valid until poll reports
   * its end. *operation is set, and the caller must release it, after FRD_DEADLINE if the operation continues, and
   * after FRD_OK if the core allocated results. Otherwise *operation is NULL. */
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
