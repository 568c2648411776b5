// A stand-in for a GPU: torch takes its tensors for those of another device, while memory and arithmetic are the
// processor's. As on a GPU, an operation over tensors of both devices is refused, and so is a generator of the
// processor's for numbers of the device's. It shows what stands where; rounding and speed it does not show.
//
// The key is HPU's, which no build of torch from its own index has kernels for, and which torch, unlike a private one,
// takes for a dense device whose tensors may replace the processor's in place (`parameter.data = ...`).

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace {

constexpr auto TYPE = c10::DeviceType::HPU;
const c10::Device HERE(TYPE, 0);

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::GetCPUAllocator()->raw_allocate(bytes);
    return {data, data, &release, HERE};
  }
  static void release(void* data) {
    c10::GetCPUAllocator()->raw_deallocate(data);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

Memory memory;
REGISTER_ALLOCATOR(TYPE, &memory)

struct Guard final : c10::impl::NoOpDeviceGuardImpl<TYPE> {
  c10::Device exchangeDevice(c10::Device) const override {
    return HERE;
  }
  c10::Device getDevice() const override {
    return HERE;
  }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, HERE);
  }
  c10::Stream getDefaultStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, HERE);
  }
  c10::Stream getNewStream(c10::Device, int) const override {
    return c10::Stream(c10::Stream::DEFAULT, HERE);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, HERE);
  }
  // All is done when a call returns, so there is nothing to wait for.
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(HPU, Guard)

struct Hooks final : at::HPUHooksInterface {
  explicit Hooks(at::HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override {
    return true;
  }
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
};

// The same bytes under another device's name; the storage that is named anew lives as long as its new name.
at::Tensor renamed(const at::Tensor& tensor, const c10::Storage& kept, c10::Device device) {
  auto* held = new c10::Storage(kept);
  auto bytes = c10::DataPtr(
      kept.mutable_data(), held, [](void* storage) { delete static_cast<c10::Storage*>(storage); }, device);
  auto* owner = device.is_cpu() ? c10::GetCPUAllocator() : static_cast<c10::Allocator*>(&memory);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), kept.nbytes(), std::move(bytes), owner, /*resizable=*/true);
  auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::HPU;
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(key), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return made;
}

// One call of an operation that has no kernel here: its tensors under the processor's name, and what comes back under
// this device's.
struct Call {
  const std::string name;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> ours; // by the processor's name of it, which `held` keeps
  std::vector<at::Tensor> held;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> names; // of our storages
  bool processor = false; // a tensor of the processor's that is more than a number takes part
  bool device = false; // a tensor of ours that is not a place takes part
  bool generator = false;

  // `place`: a GPU, too, takes places that are on the processor.
  at::Tensor to_processor(const at::Tensor& tensor, bool place = false) {
    if (!tensor.defined())
      return tensor;
    if (tensor.device().type() != TYPE) {
      processor |= tensor.dim() > 0 && !place;
      return tensor;
    }
    TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "the stand-in has no lazily conjugated numbers");
    device |= !place;
    auto result = renamed(tensor, tensor.storage(), c10::kCPU);
    if (auto seen = names.find(tensor.storage().unsafeGetStorageImpl()); seen != names.end())
      result.unsafeGetTensorImpl()->set_storage_keep_dtype(seen->second);
    else
      names.emplace(tensor.storage().unsafeGetStorageImpl(), result.storage());
    held.push_back(result);
    ours.emplace(result.unsafeGetTensorImpl(), tensor);
    storages.emplace(result.storage().unsafeGetStorageImpl(), tensor.storage());
    return result;
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_cpu())
      return tensor;
    if (auto same = ours.find(tensor.unsafeGetTensorImpl()); same != ours.end())
      return same->second;
    auto storage = storages.find(tensor.storage().unsafeGetStorageImpl());
    if (storage == storages.end())
      return renamed(tensor, tensor.storage(), HERE);
    auto view = renamed(tensor, storage->second, HERE); // of a tensor that came in
    view.unsafeGetTensorImpl()->set_storage_keep_dtype(storage->second);
    return view;
  }

  // An operation may have given a result of ours more room, or another shape.
  void take_up() {
    for (const auto& [storage, name] : names) {
      const auto& mine = storages.at(name.unsafeGetStorageImpl());
      if (name.data() == mine.data())
        continue;
      auto* held = new c10::Storage(name);
      mine.set_data_ptr_noswap({name.mutable_data(), held,
                                [](void* kept) { delete static_cast<c10::Storage*>(kept); }, HERE});
      mine.unsafeGetStorageImpl()->set_nbytes(name.nbytes());
    }
    for (const auto& [name, mine] : ours)
      if (name->sizes() != mine.sizes() || name->strides() != mine.strides() ||
          name->storage_offset() != mine.storage_offset())
        mine.unsafeGetTensorImpl()->set_sizes_and_strides(name->sizes(), name->strides(), name->storage_offset());
  }

  c10::IValue in(const c10::IValue& value) {
    if (value.isTensor())
      return to_processor(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector())
        list.push_back(to_processor(each));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        list.push_back(each ? std::optional(to_processor(*each, true)) : std::nullopt);
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == TYPE)
      return c10::Device(c10::kCPU);
    if (value.isGenerator() && value.toGenerator().defined())
      generator |= value.toGenerator().device().is_cpu();
    return value;
  }

  c10::IValue out(const c10::IValue& value) {
    if (value.isTensor())
      return to_device(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector())
        list.push_back(to_device(each));
      return list;
    }
    return value;
  }
};

void on_processor(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const auto& schema = operation.schema();
  Call call{schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name())};
  const auto count = schema.arguments().size();
  const auto first = stack->size() - count;
  for (size_t at = first; at < stack->size(); ++at)
    (*stack)[at] = call.in((*stack)[at]);
  // To write the processor's numbers into the processor's, torch takes places that are on a GPU.
  const bool written_there = schema.name() == "aten::_index_put_impl_" && !call.device;
  TORCH_CHECK(
      !call.processor || written_there,
      "Expected all tensors to be on the same device, but there are tensors on the processor and on the stand-in (",
      call.name, ")");
  TORCH_CHECK(
      !call.generator, "Expected a generator of the stand-in, but it is the processor's (", call.name, ")");
  operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.take_up();
  if (written_there)
    return;
  for (size_t at = stack->size() - schema.returns().size(); at < stack->size(); ++at)
    (*stack)[at] = call.out((*stack)[at]);
}

at::Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), &memory, c10::DispatchKeySet(c10::DispatchKey::HPU),
      c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
      c10::DispatchKeySet(c10::DispatchKey::HPU), c10::dtype_or_default(dtype));
}

// Between devices, or within this one.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  Call call{"copy"};
  call.to_processor(to).copy_(call.to_processor(from));
  return to;
}

at::Tensor as_strided(
    const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional<int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(
      !format || *format == at::MemoryFormat::Contiguous, "the stand-in resizes to contiguous numbers alone");
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(sizes);
  const auto bytes = (tensor->storage_offset() + tensor->numel()) * tensor->itemsize();
  if (bytes > self.storage().nbytes()) {
    auto more = memory.allocate(bytes);
    std::memcpy(more.get(), self.storage().data(), self.storage().nbytes());
    self.storage().set_data_ptr_noswap(std::move(more));
    self.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  return self;
}

at::Tensor& set_storage(
    at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  TORCH_CHECK(source.device().type() == TYPE, "a tensor of the stand-in cannot take a storage of the processor's");
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(std::move(source));
  tensor->set_storage_offset(offset.guard_int(__FILE__, __LINE__));
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (stride.size() == size.size())
    tensor->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride));
  else
    tensor->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(source.storage());
  tensor->set_storage_offset(source.storage_offset());
  tensor->set_sizes_and_strides(source.sizes(), source.strides());
  return self;
}

// torch has no convolution for a device of this key, and asks it for one of its own.
at::Tensor convolution(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  std::optional<at::Tensor> offset;
  if (bias && bias->defined())
    offset = bias->to(at::kCPU);
  return at::convolution_symint(
             input.to(at::kCPU), weight.to(at::kCPU), offset, stride, padding, dilation, transposed, output_padding,
             groups)
      .to(HERE);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> wanted) {
  const std::vector<c10::SymInt> offsets{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  auto made = at::convolution_backward_symint(
      gradient.to(at::kCPU), input.to(at::kCPU), weight.to(at::kCPU), at::OptionalSymIntArrayRef(offsets), stride,
      padding, dilation, transposed, output_padding, groups, wanted);
  auto here = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(HERE) : tensor; };
  return {here(std::get<0>(made)), here(std::get<1>(made)), here(std::get<2>(made))};
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_processor>());
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
}

// Under autocast, what CUDA has: the same operations in half precision, the same in float32.
TORCH_LIBRARY_IMPL(_, AutocastHPU, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

#define STANDIN_LOW(...) KERNEL(TYPE, __VA_ARGS__, lower_precision_fp)
#define STANDIN_FLOAT32(...) KERNEL(TYPE, __VA_ARGS__, fp32)
#define STANDIN_FLOAT32_OUT(...) KERNEL(TYPE, __VA_ARGS__, fp32_set_opt_dtype)
#define STANDIN_PROMOTE(...) KERNEL(TYPE, __VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastHPU, m) {
  AT_FORALL_LOWER_PRECISION_FP(STANDIN_LOW)
  AT_FORALL_FP32(STANDIN_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(STANDIN_FLOAT32_OUT)
  AT_FORALL_PROMOTE(STANDIN_PROMOTE)
}

} // namespace

namespace at {
C10_REGISTER_CLASS(HPUHooksRegistry, HPUHooks, Hooks)
}
