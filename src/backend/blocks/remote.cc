#include "backend/blocks/remote.h"

#include "backend/backend.h"
#include "backend/ref/host_rows.h"

namespace ingot {

// A warm-up step, which has only padding, has no rows to send.
void Backend::remote(const RemoteBlock& b) {
  const int n = batch().n_tokens();
  if (n == 0) return;
  HostRows host(*this);
  const Tensor x = b.x.slice_rows(0, n), rows = b.reads_x ? host.inout(x) : host.out(x);
  b.run(batch(), rows.f32());
}

void run_block(const RemoteBlock& b, Backend& backend) { backend.remote(b); }

}  // namespace ingot
