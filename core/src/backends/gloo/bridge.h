/* The interface of libfarandole_gloo.so: Gloo's collectives behind plain C functions, since Gloo is C++ without a
 * stable interface and has to be compiled against. The library is built on its own (core/gloo/), against the Gloo that
 * the system has; the core opens it when the user asks for it, and refuses one of another FRD_GLOO_ABI.
 *
 * Sizes are bytes. A function that can fail returns 0 when it went well, else 1, and writes a sentence into `error`, of
 * FRD_GLOO_ERROR_BYTES.
 *
 * The core owns a context from `listen` to `destroy`. A context belongs to one process set: its functions are called by
 * one thread at a time, but for `close`.
 *
 *   listen -> the members tell each other their addresses -> connect -> allreduce, ... -> destroy
 *                                                  close, at any time -> destroy
 */
#ifndef FARANDOLE_BACKENDS_GLOO_BRIDGE_H_
#define FARANDOLE_BACKENDS_GLOO_BRIDGE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FRD_GLOO_ABI 1
#define FRD_GLOO_ERROR_BYTES 512
#define FRD_GLOO_ADDRESS_BYTES 256 /* of one connection, at most */
#define FRD_GLOO_TABLE "frd_gloo_table"

/* The core's reduction, which Gloo calls in the thread of its caller: output[i] = left[i] reduced with right[i]. output
 * may be one of the two. */
typedef void (*FrdGlooReduce)(void* argument, void* output, const void* left, const void* right, size_t element_count);

typedef struct FrdGlooTable {
  uint32_t struct_size;
  uint32_t abi;
  const char* version; /* Gloo's, "0.5.0" */

  /* Listens at `address` for the other members. Writes where, in size * FRD_GLOO_ADDRESS_BYTES bytes of `peer_address`.
   * timeout_ms: after which an operation of the context fails. */
  void* (*listen)(const char* address, int position, int size, int64_t timeout_ms, char* peer_address, char* error);
  /* peer_addresses: of all positions, one after the other. Blocks until all are connected, or 5 * timeout_ms. */
  int (*connect)(void* context, const char* peer_addresses, char* error);
  /* Running operations fail soon, and all later ones fail. Any thread. */
  void (*close)(void* context);
  void (*destroy)(void* context);

  /* Each blocks until the other members have called it, too. Members give the same sizes. */
  int (*allreduce)(void* context, const void* input, void* output, size_t element_count, size_t element_bytes,
                   FrdGlooReduce reduce, void* argument, char* error); /* input may be output */
  int (*broadcast)(void* context, void* data, size_t size_bytes, int root, char* error);
  int (*allgather)(void* context, const void* input, void* output, const size_t* position_bytes, char* error);
  int (*alltoall)(void* context, const void* input, const size_t* send_bytes, void* output, const size_t* recv_bytes,
                  char* error);
} FrdGlooTable;

typedef const FrdGlooTable* (*FrdGlooTableFunction)(void);

#ifdef __cplusplus
}
#endif

#endif /* FARANDOLE_BACKENDS_GLOO_BRIDGE_H_ */
