#include "operations.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "call.h"
#include "types.h"

namespace farandole_tensorflow {
namespace {

// ---- Attributes

class Attributes {
 public:
  explicit Attributes(TfConstruction* construction) : construction_(construction) {}

  std::string Text(const char* name) {
    int32_t list_size = 0, size = 0;
    tf.OpKernelConstruction_GetAttrSize(construction_, name, &list_size, &size, status_);
    std::string value(ok() ? size : 0, '\0');
    if (!value.empty()) {
      tf.OpKernelConstruction_GetAttrString(construction_, name, value.data(), value.size(), status_);
    }
    return value;
  }

  int64_t Integer(const char* name) {
    int64_t value = 0;
    if (ok()) tf.OpKernelConstruction_GetAttrInt64(construction_, name, &value, status_);
    return value;
  }

  // Attributes have no doubles: an integer carries its bits.
  double Real(const char* name) {
    const int64_t bits = Integer(name);
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  bool Flag(const char* name) {
    unsigned char value = 0;
    if (ok()) tf.OpKernelConstruction_GetAttrBool(construction_, name, &value, status_);
    return value != 0;
  }

  std::string NodeName() {
    const TfStringView name = tf.OpKernelConstruction_GetName(construction_);
    return {name.data, name.length};
  }

  bool ok() { return status_.ok(); }
  void TellFailure() { tf.OpKernelConstruction_Failure(construction_, status_); }

 private:
  TfConstruction* const construction_;
  Status status_;
};

// TensorFlow puts the content of a branch or loop into the graph around it, as cond/then/_5/allreduce, and numbers all
// such places together. A rank with one more of them, even without a Farandole operation, would have other names after
// it. The name without the number is unique already.
std::string WithoutPlaceNumbers(const std::string& name) {
  std::string result;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const bool is_number = end > begin + 1 && name[begin] == '_' &&
                           std::all_of(name.begin() + begin + 1, name.begin() + end,
                                       [](unsigned char each) { return std::isdigit(each) != 0; });
    if (!is_number) result += (result.empty() ? "" : "/") + name.substr(begin, end - begin);
    begin = end + 1;
  }
  return result;
}

bool IsReduction(int32_t operation) { return operation == FRD_ALLREDUCE || operation == FRD_REDUCESCATTER; }

template <int32_t operation, bool on_device = false>
void* Create(TfConstruction* construction) noexcept {
  Attributes attributes(construction);
  auto wish = std::make_unique<Wish>();
  wish->operation = operation;
  wish->on_device = on_device;
  wish->is_node = attributes.Flag("is_node");
  wish->name = attributes.Text("tensor_name");
  // TensorFlow copies a function's nodes to wherever it is called; the names of nodes tell the copies apart.
  if (wish->is_node) wish->name = WithoutPlaceNumbers(attributes.NodeName());
  wish->process_set = static_cast<int32_t>(attributes.Integer("process_set"));
  wish->site = attributes.Text("site");
  if (IsReduction(operation)) {
    wish->reduce = static_cast<int32_t>(attributes.Integer("reduce"));
    wish->prescale = attributes.Real("prescale_bits");
    wish->postscale = attributes.Real("postscale_bits");
  }
  if (operation == FRD_BROADCAST) wish->root = static_cast<int32_t>(attributes.Integer("root_rank"));
  if (attributes.ok()) return wish.release();
  attributes.TellFailure();
  return nullptr;
}

void Compute(void* kernel, TfContext* context, TfDone* done) noexcept {
  Call::Begin(*static_cast<const Wish*>(kernel), context, done);
}

void Delete(void* kernel) { delete static_cast<Wish*>(kernel); }

void Give(int32_t value, TfContext* context, TfDone* done) {
  Status status;
  TfTensor* const result = tf.AllocateOutput(context, 0, kTfInt32, nullptr, 0, sizeof value, status);
  if (status.ok()) {
    std::memcpy(tf.TensorData(result), &value, sizeof value);
  } else {
    tf.OpKernelContext_Failure(context, status);
  }
  if (result != nullptr) tf.DeleteTensor(result);
  tf.RunAsyncOpKernelDoneCallback(done);
}

void* CreateToken(TfConstruction*) { return nullptr; }

void ComputeToken(void*, TfContext* context, TfDone* done) { Give(0, context, done); }

void DeleteToken(void*) {}

void* CreatePlace(TfConstruction* construction) {
  return new std::string(WithoutPlaceNumbers(Attributes(construction).NodeName()));
}

void ComputePlace(void* kernel, TfContext* context, TfDone* done) {
  const std::string name = NameOfExecution(*static_cast<const std::string*>(kernel), context);
  Give(static_cast<int32_t>(std::hash<std::string>()(name)), context, done);
}

void DeletePlace(void* kernel) { delete static_cast<std::string*>(kernel); }

// ---- Shapes

class Shape {
 public:
  Shape() : Shape(tf.NewShapeHandle()) {}
  explicit Shape(TfShape* shape) : shape_(shape) {}
  ~Shape() { tf.DeleteShapeHandle(shape_); }
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;

  operator TfShape*() { return shape_; }

 private:
  TfShape* const shape_;
};

constexpr size_t kUnknown = static_cast<size_t>(-1);

void InferSame(TfShapeContext* context, TfStatus* status) {
  const int count = static_cast<int>(tf.ShapeInferenceContextNumInputs(context)) - 1;
  for (int i = 0; i < count && tf.GetCode(status) == 0; ++i) {
    Shape input;
    tf.ShapeInferenceContextGetInput(context, i, input, status);
    if (tf.GetCode(status) == 0) tf.ShapeInferenceContextSetOutput(context, i, input, status);
  }
}

// The output has the input's shape with any number of rows.
void InferRows(TfShapeContext* context, int index, TfStatus* status) {
  Shape input, rest, result, rows(tf.ShapeInferenceContextVectorFromSize(context, kUnknown));
  tf.ShapeInferenceContextGetInput(context, index, input, status);
  if (tf.GetCode(status) != 0) return;
  tf.ShapeInferenceContextWithRankAtLeast(context, input, 1, input, status);
  if (tf.GetCode(status) != 0) return;
  tf.ShapeInferenceContextSubshape(context, input, 1, INT64_MAX, rest, status);
  if (tf.GetCode(status) != 0) return;
  tf.ShapeInferenceContextConcatenateShapes(context, rows, rest, result, status);
  if (tf.GetCode(status) == 0) tf.ShapeInferenceContextSetOutput(context, index, result, status);
}

void InferAllRows(TfShapeContext* context, TfStatus* status) {
  const int count = static_cast<int>(tf.ShapeInferenceContextNumInputs(context)) - 1;
  for (int i = 0; i < count && tf.GetCode(status) == 0; ++i) InferRows(context, i, status);
}

void InferAlltoall(TfShapeContext* context, TfStatus* status) {
  InferRows(context, 0, status);
  Shape counts(tf.ShapeInferenceContextVectorFromSize(context, kUnknown));
  if (tf.GetCode(status) == 0) tf.ShapeInferenceContextSetOutput(context, 1, counts, status);
}

void InferScalar(TfShapeContext* context, TfStatus* status) {
  Shape scalar(tf.ShapeInferenceContextScalar(context));
  tf.ShapeInferenceContextSetOutput(context, 0, scalar, status);
}

void InferNothing(TfShapeContext*, TfStatus*) {}

// ---- Definitions

using Texts = std::vector<std::string>;

struct Kernel {
  TfCreate create;
  TfCreate create_on_device = nullptr;  // for tensors that stay on a device; null: none
  TfCompute compute = &Compute;
  TfDelete destroy = &Delete;
};

template <int32_t operation>
constexpr Kernel kOnHostOrDevice = {&Create<operation>, &Create<operation, true>};

struct Definition {
  const char* name;
  Kernel kernel;
  TfInferShape infer;
  bool is_stateful;
  Texts inputs, outputs, attributes;
};

std::string NameOf(const std::string& argument) { return argument.substr(0, argument.find(':')); }

std::string Define(const Definition& definition) {
  TfOpBuilder* const builder = tf.NewOpDefinitionBuilder(definition.name);
  for (const auto& each : definition.inputs) tf.OpDefinitionBuilderAddInput(builder, each.c_str());
  for (const auto& each : definition.outputs) tf.OpDefinitionBuilderAddOutput(builder, each.c_str());
  for (const auto& each : definition.attributes) tf.OpDefinitionBuilderAddAttr(builder, each.c_str());
  // TensorFlow takes any call as true.
  if (definition.is_stateful) tf.OpDefinitionBuilderSetIsStateful(builder, true);
  tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.infer);
  Status status;
  tf.RegisterOpDefinition(builder, status);
  return status.ok() ? "" : status.message();
}

bool IsToken(const std::string& argument) { return NameOf(argument) == "token"; }

// On a GPU the arguments lie in host memory, and TensorFlow copies them in its streams, before and after. Only the
// tensors of a kernel that takes device memory stay there. `device_of_core`: where kernels do that; null: nowhere.
std::string AddKernel(const Definition& definition, const char* device, const char* device_of_core) {
  const Kernel& kernel = definition.kernel;
  const bool as_they_lie =
      kernel.create_on_device != nullptr && device_of_core != nullptr && std::strcmp(device, device_of_core) == 0;
  TfKernelBuilder* const builder = tf.NewAsyncKernelBuilder(
      definition.name, device, as_they_lie ? kernel.create_on_device : kernel.create, kernel.compute, kernel.destroy);
  for (const Texts& arguments : {definition.inputs, definition.outputs}) {
    for (const auto& each : arguments) {
      const bool on_host = std::strcmp(device, "GPU") == 0 && (!as_they_lie || IsToken(each));
      if (on_host) tf.KernelBuilder_HostMemory(builder, NameOf(each).c_str());
    }
  }
  Status status;
  tf.RegisterKernelBuilder((std::string(definition.name) + device).c_str(), builder, status);
  return status.ok() ? "" : status.message();
}

}  // namespace

std::string RegisterOperations(const char* device_of_core) {
  const std::string types = std::string("T: list(") + kTypes + ") >= 1", type = std::string("T: ") + kTypes;
  const Texts tensors = {"tensors: T", "token: int32"}, results = {"results: T"};
  const Texts common = {"tensor_name: string", "is_node: bool", "process_set: int", "site: string"};
  const auto with = [&common](Texts more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  const Texts reducing = with({types, "reduce: int", "prescale_bits: int", "postscale_bits: int"});
  const Texts rooted = with({types, "root_rank: int"});
  const Definition definitions[] = {
      {"FarandoleAllreduce", kOnHostOrDevice<FRD_ALLREDUCE>, &InferSame, false, tensors, results, reducing},
      {"FarandoleBroadcast", kOnHostOrDevice<FRD_BROADCAST>, &InferSame, false, tensors, results, rooted},
      {"FarandoleAllgather", {&Create<FRD_ALLGATHER>}, &InferAllRows, false, tensors, results, with({types})},
      {"FarandoleReducescatter", {&Create<FRD_REDUCESCATTER>}, &InferAllRows, false, tensors, results, reducing},
      {"FarandoleAlltoall",
       {&Create<FRD_ALLTOALL>},
       &InferAlltoall,
       false,
       {"tensor: T", "splits: int64", "token: int32"},
       {"result: T", "received: int64"},
       with({type})},
      {"FarandoleBarrier", {&Create<FRD_BARRIER>}, &InferNothing, true, {}, {}, common},
      {"FarandoleJoin", {&Create<FRD_JOIN>}, &InferScalar, true, {}, {"last: int64"}, common},
      {"FarandoleNeedsJitCompileFalse",
       {&CreateToken, nullptr, &ComputeToken, &DeleteToken},
       &InferScalar,
       true,
       {},
       {"token: int32"},
       {}},
      {"FarandolePlace",
       {&CreatePlace, nullptr, &ComputePlace, &DeletePlace},
       &InferScalar,
       true,
       {},
       {"place: int32"},
       {}},
  };
  for (const Definition& definition : definitions) {
    for (const std::string& problem : {Define(definition), AddKernel(definition, "CPU", device_of_core),
                                       AddKernel(definition, "GPU", device_of_core)}) {
      if (!problem.empty()) return problem;
    }
  }
  return "";
}

}  // namespace farandole_tensorflow
