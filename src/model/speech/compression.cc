#include "model/speech/compression.h"

#include <boost/beast/zlib/deflate_stream.hpp>
#include <vector>

#include "base/check.h"

namespace ingot {

double compression_ratio(std::string_view text) {
  if (text.empty()) return 0;
  constexpr size_t kZlibFrame = 6;  // zlib's header and checksum around the deflated bytes
  namespace zlib = boost::beast::zlib;
  constexpr int kUsualLevel = 6, kWindowBits = 15, kMemoryLevel = 8;
  zlib::deflate_stream stream;
  stream.reset(kUsualLevel, kWindowBits, kMemoryLevel, zlib::Strategy::normal);
  std::vector<char> out(stream.upper_bound(text.size()));
  zlib::z_params params;
  params.next_in = text.data(), params.avail_in = text.size();
  params.next_out = out.data(), params.avail_out = out.size();
  boost::beast::error_code error;
  stream.write(params, zlib::Flush::finish, error);
  CHECK(error == zlib::error::end_of_stream);
  return static_cast<double>(text.size()) / static_cast<double>(params.total_out + kZlibFrame);
}

}  // namespace ingot
