// libcurl is opened at run time: which libraries are taken, and what is said if there is none.
#include "io/hub/libcurl.h"

#include <gmock/gmock.h>

#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LibCurl, TheFirstLibraryThatHasAllFunctionsIsTaken) {
  const std::vector<const char*> names = {"libabsent-curl.so.4", "libm.so.6", "libcurl.so.4"};
  const LibCurl functions = open_libcurl(names);
#define INGOT_CURL_IS_THERE(name) EXPECT_NE(functions.name, nullptr) << #name;
  INGOT_CURL_FUNCTIONS(INGOT_CURL_IS_THERE)
#undef INGOT_CURL_IS_THERE
  EXPECT_STREQ(functions.easy_strerror(CURLE_OUT_OF_MEMORY), "Out of memory");
}

TEST(LibCurl, WithoutOneTheErrorSaysWhatToInstall) {
  for (const std::vector<const char*>& names : std::vector<std::vector<const char*>>{
           {}, {"libabsent-curl.so.4"}, {"libm.so.6", "libc.so.6"} /* libraries of others */}) {
    try {
      open_libcurl(names);
      FAIL() << "there is no libcurl among " << names.size();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("need libcurl"), HasSubstr("apt install libcurl4")));
    }
  }
}

}  // namespace
}  // namespace ingot
