#include "backend/blocks/plain_layers.h"

#include "backend/backend.h"

namespace ingot {

void Backend::plain_layers(const PlainLayersBlock& b) { run_blocks(b.blocks); }

void run_block(const PlainLayersBlock& b, Backend& backend) { backend.plain_layers(b); }

}  // namespace ingot
