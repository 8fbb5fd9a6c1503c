// DeviceWeights: the weights of CudaBackend, copied to the device piece by piece, and repacked there. Loading does not
// wait for the device. The device computes one fact about a weight: the largest scale, which determines the weight's
// factor, or for 8-bit floats which elements share a scale (packed_weight.h). The host reads the facts when an op first
// needs one.
#pragma once
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/matmul/weight_upload.h"

namespace ingot::cuda {

inline const PackedWeight& packed(const Weight& w) {
  CHECK(w.packed != nullptr);
  return *static_cast<const PackedWeight*>(w.packed);
}

class DeviceWeights {
 public:
  // keeps_copies: quantized weights get copies in f16 (PackedWeight::halves), until save_memory().
  DeviceWeights(Core& core, bool keeps_copies) : core_(core), keeps_copies_(keeps_copies) {}

  Weight prepare(const Weight& host, unsigned use);
  size_t packed_bytes(const Weight& shape, unsigned use) const;
  bool save_memory() { return std::exchange(keeps_copies_, false); }
  bool upload(const Tensor& to, const void* from, size_t bytes);  // false: weights are not being loaded
  void end_upload();                                              // after all weights have been prepared
  void join(const Program& program);

  const PackedWeight& ready(const Weight& w);  // the weight, with its factor read
  bool may_have_codes() const;                 // true before any weight is loaded
  bool has_copies() const { return !copies_.empty(); }
  std::span<const Weight> of_products() const { return of_products_; }

 private:
  struct EmptyCopy {
    PackedWeight *w, *halves;
    bool rounds;
  };

  void pack_dense(PackedWeight& w, const Weight& host);
  void pack_codes(PackedWeight& w, const Weight& host);
  bool is_float8(const Weight& host) const;
  void pack_float8(PackedWeight& w, const Weight& host);
  uint32_t* fact_of(PackedWeight& w);
  WeightUpload& weight_upload();
  PackedWeight* own(const Weight& weight);
  size_t copy_bytes(const Weight& shape, unsigned use) const;
  void add_copy(PackedWeight& w, Format format, size_t bytes);
  void fill_copies();
  void join(std::initializer_list<const Weight*> weights);
  void read_facts();
  void* take(size_t bytes);  // for the weight that prepare() packs: memory of the device, or of the host

  Core& core_;
  Device& device_ = core_.device;
  bool keeps_copies_;
  std::deque<PackedWeight> weights_;
  std::deque<PackedWeight> joined_;  // PackedWeight::whole
  std::deque<PackedWeight> copies_;  // PackedWeight::halves
  std::vector<EmptyCopy> empty_copies_;
  std::vector<Weight> of_products_;
  std::unique_ptr<WeightUpload> upload_;      // until end_upload()
  std::vector<PackedWeight*> without_facts_;  // their facts are still on the device, in facts_
  Memory facts_;
  bool in_host_memory_ = false;  // of that weight (kForHostTable)
  std::deque<Memory> in_host_;
  Memory raw_;  // a weight or a part of it, in the file's layout, while it is repacked
};

}  // namespace ingot::cuda
