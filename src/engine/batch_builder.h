// BatchBuilder: turns a planned step into the arrays that a backend reads. All storage is taken at start-up.
#pragma once
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/sampling.h"
#include "engine/scheduler.h"

namespace ingot {

class BatchBuilder {
 public:
  BatchBuilder(const SchedulerLimits& limits, int max_len /* of one sequence */);

  // The batch, and one sample row for each of its logit rows. Valid until the next fill.
  const Batch& fill(const Step& step);
  std::span<const SampleRow> rows() const { return rows_; }

 private:
  void fill_block_table(const Step& step);

  std::vector<int32_t> tokens_, positions_, q_start_, kv_len_, block_table_, logit_rows_;
  std::vector<SampleRow> rows_;
  Batch batch_;
};

}  // namespace ingot
