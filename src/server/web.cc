#include "server/web.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "server/web_assets.h"

namespace ingot {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".json", "application/json"},
};

// Pages load nothing from other servers and run no inline scripts, so a model's output cannot run as code.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::vector<WebAsset> make_assets() {
  std::vector<WebAsset> assets;
  for (const EmbeddedFile& file : kEmbeddedFiles) {
    const std::string_view name = file.name;
    const std::string_view extension = name.substr(name.rfind('.'));
    WebAsset asset{.path = name,
                   .type = "application/octet-stream",
                   .bytes = {file.begin, static_cast<size_t>(file.end - file.begin)}};
    for (const auto& [suffix, type] : kTypes)
      if (extension == suffix) asset.type = type;
    if (extension == ".html") asset.path.remove_suffix(extension.size());
    if (asset.path == "/index") asset.path = "/";
    assets.push_back(asset);
  }
  return assets;
}

std::string etag_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return fmt::format("\"{:016x}\"", hash);
}

}  // namespace

const WebAsset* find_web_asset(std::string_view path) {
  static const std::vector<WebAsset> assets = make_assets();
  for (const WebAsset& asset : assets)
    if (asset.path == path) return &asset;
  return nullptr;
}

HttpResponse web_response(const WebAsset& asset, const HttpRequest& request) {
  const std::string etag = etag_of(asset.bytes);
  HttpResponse response{.content_type = std::string(asset.type),
                        .headers = {{"ETag", etag},
                                    {"Cache-Control", "no-cache"},
                                    {"Content-Security-Policy", kPolicy},
                                    {"Referrer-Policy", "no-referrer"}}};
  if (const std::string* known = request.header("if-none-match"); known && *known == etag) {
    response.status = 304;
  } else {
    response.body = asset.bytes;
  }
  return response;
}

}  // namespace ingot
