// The part of TensorFlow that the plugin uses: its C functions, declared here and looked up in the libraries that
// Python has loaded.
//
// Declarations of our own, instead of TensorFlow's headers, let one binary serve every version from 2.13 on. Constant
// after OpenTensorFlow; any thread, as far as TensorFlow's own rules go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace farandole_tensorflow {

struct TfStatus;
struct TfTensor;
struct TfOpBuilder;
struct TfKernelBuilder;
struct TfConstruction;
struct TfContext;
struct TfShapeContext;
struct TfShape;
struct TfDone;

struct TfStringView {
  const char* data;
  size_t length;
};

// The values of TF_Code and TF_DataType that are used.
constexpr int kTfInvalidArgument = 3, kTfDeadlineExceeded = 4, kTfFailedPrecondition = 9, kTfInternal = 13;
constexpr int kTfUnavailable = 14;
constexpr int kTfInt32 = 3, kTfInt64 = 9;

using TfCreate = void* (*)(TfConstruction*);
using TfCompute = void (*)(void* kernel, TfContext*, TfDone*);
using TfDelete = void (*)(void* kernel);
using TfFree = void (*)(void* data, size_t size_bytes, void* argument);
using TfInferShape = void (*)(TfShapeContext*, TfStatus*);

// (result, name without TF_, parameters)
#define FARANDOLE_TF_FUNCTIONS(X)                                                                                      \
  X(TfStatus*, NewStatus, ())                                                                                          \
  X(void, DeleteStatus, (TfStatus*))                                                                                   \
  X(void, SetStatus, (TfStatus*, int code, const char* message))                                                       \
  X(int, GetCode, (const TfStatus*))                                                                                   \
  X(const char*, Message, (const TfStatus*))                                                                           \
  X(int, TensorType, (const TfTensor*))                                                                                \
  X(int, NumDims, (const TfTensor*))                                                                                   \
  X(int64_t, Dim, (const TfTensor*, int))                                                                              \
  X(void*, TensorData, (const TfTensor*))                                                                              \
  X(TfTensor*, NewTensor, (int type, const int64_t*, int, void*, size_t, TfFree, void*))                               \
  X(void, DeleteTensor, (TfTensor*))                                                                                   \
  X(TfOpBuilder*, NewOpDefinitionBuilder, (const char*))                                                               \
  X(void, RegisterOpDefinition, (TfOpBuilder*, TfStatus*))                                                             \
  X(void, OpDefinitionBuilderAddAttr, (TfOpBuilder*, const char*))                                                     \
  X(void, OpDefinitionBuilderAddInput, (TfOpBuilder*, const char*))                                                    \
  X(void, OpDefinitionBuilderAddOutput, (TfOpBuilder*, const char*))                                                   \
  X(void, OpDefinitionBuilderSetIsStateful, (TfOpBuilder*, bool))                                                      \
  X(void, OpDefinitionBuilderSetShapeInferenceFunction, (TfOpBuilder*, TfInferShape))                                  \
  X(TfShape*, NewShapeHandle, ())                                                                                      \
  X(void, DeleteShapeHandle, (TfShape*))                                                                               \
  X(int64_t, ShapeInferenceContextNumInputs, (TfShapeContext*))                                                        \
  X(void, ShapeInferenceContextGetInput, (TfShapeContext*, int, TfShape*, TfStatus*))                                  \
  X(void, ShapeInferenceContextSetOutput, (TfShapeContext*, int, TfShape*, TfStatus*))                                 \
  X(void, ShapeInferenceContextWithRankAtLeast, (TfShapeContext*, TfShape*, int64_t, TfShape*, TfStatus*))             \
  X(void, ShapeInferenceContextSubshape, (TfShapeContext*, TfShape*, int64_t, int64_t, TfShape*, TfStatus*))           \
  X(void, ShapeInferenceContextConcatenateShapes, (TfShapeContext*, TfShape*, TfShape*, TfShape*, TfStatus*))          \
  X(TfShape*, ShapeInferenceContextVectorFromSize, (TfShapeContext*, size_t))                                          \
  X(TfShape*, ShapeInferenceContextScalar, (TfShapeContext*))                                                          \
  X(TfKernelBuilder*, NewAsyncKernelBuilder, (const char*, const char*, TfCreate, TfCompute, TfDelete))                \
  X(void, KernelBuilder_HostMemory, (TfKernelBuilder*, const char*))                                                   \
  X(void, RegisterKernelBuilder, (const char*, TfKernelBuilder*, TfStatus*))                                           \
  X(void, OpKernelConstruction_Failure, (TfConstruction*, TfStatus*))                                                  \
  X(TfStringView, OpKernelConstruction_GetName, (TfConstruction*))                                                     \
  X(void, OpKernelConstruction_GetAttrSize, (TfConstruction*, const char*, int32_t*, int32_t*, TfStatus*))             \
  X(void, OpKernelConstruction_GetAttrString, (TfConstruction*, const char*, char*, size_t, TfStatus*))                \
  X(void, OpKernelConstruction_GetAttrInt64, (TfConstruction*, const char*, int64_t*, TfStatus*))                      \
  X(void, OpKernelConstruction_GetAttrBool, (TfConstruction*, const char*, unsigned char*, TfStatus*))                 \
  X(int, NumInputs, (TfContext*))                                                                                      \
  X(void, GetInput, (TfContext*, int, TfTensor**, TfStatus*))                                                          \
  X(TfTensor*, AllocateOutput, (TfContext*, int, int, const int64_t*, int, size_t, TfStatus*))                         \
  X(void, SetOutput, (TfContext*, int, const TfTensor*, TfStatus*))                                                    \
  X(TfTensor*, ForwardInputOrAllocateOutput, (TfContext*, const int*, int, int, const int64_t*, int, int*, TfStatus*)) \
  X(uint64_t, GetFrameId, (TfContext*))                                                                                \
  X(int64_t, GetIterId, (TfContext*))                                                                                  \
  X(void, OpKernelContext_Failure, (TfContext*, TfStatus*))                                                            \
  X(void, RunAsyncOpKernelDoneCallback, (TfDone*))

struct TfApi {
#define FARANDOLE_TF_FIELD(result, name, parameters) result(*name) parameters;
  FARANDOLE_TF_FUNCTIONS(FARANDOLE_TF_FIELD)
#undef FARANDOLE_TF_FIELD
};

// The functions; valid after OpenTensorFlow.
extern TfApi tf;

// Looks the functions up. Returns "", or why they cannot be used.
std::string OpenTensorFlow();

// A TF_Status that lives as long as the object.
class Status {
 public:
  Status() : status_(tf.NewStatus()) {}
  Status(int code, const std::string& message) : Status() { tf.SetStatus(status_, code, message.c_str()); }
  ~Status() { tf.DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  operator TfStatus*() { return status_; }
  bool ok() const { return tf.GetCode(status_) == 0; }
  std::string message() const { return tf.Message(status_); }

 private:
  TfStatus* const status_;
};

}  // namespace farandole_tensorflow
