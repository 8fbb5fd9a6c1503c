#include "cli/version.h"

#include "backend/cuda/create_cuda.h"
#include "base/json.h"
#include "cli/build_facts.h"
#include "text/json_value.h"

namespace ingot {

std::string version_line() { return "ingot " INGOT_VERSION; }

std::string build_commit() { return kBuildCommit; }
std::string build_compiler() { return kBuildCompiler; }

std::string version_json() {
  JsonValue backends = JsonValue::array({"cpu", "ref"});
  if (why_no_cuda().empty()) backends.push_back("cuda");
  return JsonValue({{"version", INGOT_VERSION},
                    {"commit", kBuildCommit},
                    {"compiler", kBuildCompiler},
                    {"system", kBuildSystem},
                    {"backends", backends}})
      .dump(2);
}

}  // namespace ingot
