#include "file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <set>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#elif defined(__unix__) || defined(__APPLE__)
#define ANYDEPTH_MMAP
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace anydepth {

namespace {

constexpr char MAGIC[8] = {'A', 'N', 'Y', 'D', 'E', 'P', 'T', 'H'};
constexpr uint32_t OLDEST = 3, VERSION = 6;  // 4: of a model that classifies; 5: computed positions; 6: int4
constexpr uint32_t MOST_SECTIONS = 4096;
constexpr uint64_t ENTRY = 32, MOST_HEADER = 64u << 20;
constexpr size_t CHECKED_FROM = 16;  // the checksum covers the header from here on

// Files are little-endian, and so are all machines that this runs on; bytes are put together all the same.
uint32_t u32(const uint8_t* p) {
  return uint32_t(p[0]) | uint32_t(p[1]) << 8 | uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24;
}
uint64_t u64(const uint8_t* p) { return uint64_t(u32(p)) | uint64_t(u32(p + 4)) << 32; }

}  // namespace

uint32_t crc32(const uint8_t* data, size_t size) {
  static const std::vector<uint32_t> table = [] {
    std::vector<uint32_t> made(8 * 256);
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      made[i] = c;
    }
    for (uint32_t i = 0; i < 256; ++i)
      for (int k = 1; k < 8; ++k)
        made[k * 256 + i] = (made[(k - 1) * 256 + i] >> 8) ^ made[made[(k - 1) * 256 + i] & 255];
    return made;
  }();
  const uint32_t* t = table.data();
  uint32_t c = 0xFFFFFFFFu;
  for (; size >= 8; data += 8, size -= 8) {
    c ^= u32(data);
    c = t[7 * 256 + (c & 255)] ^ t[6 * 256 + (c >> 8 & 255)] ^ t[5 * 256 + (c >> 16 & 255)] ^ t[4 * 256 + (c >> 24)] ^
        t[3 * 256 + data[4]] ^ t[2 * 256 + data[5]] ^ t[256 + data[6]] ^ t[data[7]];
  }
  for (; size; ++data, --size) c = t[(c ^ *data) & 255] ^ (c >> 8);
  return c ^ 0xFFFFFFFFu;
}

uint64_t header_size(const uint8_t* data, size_t size) {
  if (size < PREAMBLE) throw Error("the file is too short to be a model");
  if (std::memcmp(data, MAGIC, sizeof MAGIC) != 0) throw Error("this is not a model file of anydepth");
  if (u32(data + 8) < OLDEST || u32(data + 8) > VERSION)
    throw Error("the file was written by another version of anydepth: export the model again");
  const uint64_t found = u64(data + 16), sections = u32(data + 32);
  if (sections > MOST_SECTIONS || found > MOST_HEADER || found < PREAMBLE + sections * ENTRY)
    throw Error("a number in the file is out of range");
  return found;
}

Header read_header(const uint8_t* data, size_t size) {
  const uint64_t length = header_size(data, size);
  if (length > size) throw Error("the file is shorter than its header says");
  if (crc32(data + CHECKED_FROM, static_cast<size_t>(length) - CHECKED_FROM) != u32(data + 12))
    throw Error("the file is damaged: the checksum of its header is wrong");
  Header found;
  found.file_size = u64(data + 24);
  const uint32_t count = u32(data + 32);
  std::set<std::pair<uint32_t, uint32_t>> seen;
  uint64_t end = length;
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* entry = data + PREAMBLE + i * ENTRY;
    const SectionInfo one = {static_cast<SectionKind>(u32(entry)), u32(entry + 4), u64(entry + 8), u64(entry + 16),
                             u32(entry + 24)};
    if (one.offset != to_line(end)) throw Error("the sections of the file do not follow one another");
    if (!seen.emplace(u32(entry), one.index).second) throw Error("the file has a section twice");
    end = checked_add(one.offset, one.size);
    found.sections.push_back(one);
  }
  if (end != found.file_size) throw Error("the sections of the file do not add up to its size");
  const uint64_t table_end = PREAMBLE + count * ENTRY;
  found.json.assign(reinterpret_cast<const char*>(data + table_end), static_cast<size_t>(length - table_end));
  return found;
}

MappedFile::MappedFile(const char* path) {
  const auto fail = [path](const char* reason) { throw Error(std::string("cannot read ") + path + ": " + reason); };
#if defined(ANYDEPTH_MMAP)
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(std::strerror(errno));
  struct stat about;
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(file);
    fail("it is not a file");
  }
  const uint64_t bytes = static_cast<uint64_t>(about.st_size);
  void* found = MAP_FAILED;
  if (bytes > 0 && bytes <= static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max()))
    found = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, file, 0);
  const int problem = errno;
  ::close(file);
  if (bytes == 0) fail("the file is empty");
  if (found == MAP_FAILED) fail(std::strerror(problem));
  data_ = static_cast<const uint8_t*>(found);
  size_ = static_cast<size_t>(bytes);
#elif defined(_WIN32)
  const int wide = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, nullptr, 0);
  std::vector<wchar_t> name(wide > 0 ? wide : 1);
  if (wide > 0) MultiByteToWideChar(CP_UTF8, 0, path, -1, name.data(), wide);
  const HANDLE file = CreateFileW(name.data(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) fail("there is no such file, or it may not be read");
  LARGE_INTEGER bytes;
  const bool sized = GetFileSizeEx(file, &bytes) && bytes.QuadPart > 0 &&
                     bytes.QuadPart <= std::numeric_limits<ptrdiff_t>::max();
  const HANDLE mapping = sized ? CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr) : nullptr;
  CloseHandle(file);
  if (mapping == nullptr) fail("the file is empty, or cannot be mapped");
  data_ = static_cast<const uint8_t*>(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0));
  CloseHandle(mapping);
  if (data_ == nullptr) fail("it cannot be mapped");
  size_ = static_cast<size_t>(bytes.QuadPart);
#else
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rb"), std::fclose);
  if (!file) fail(std::strerror(errno));
  std::vector<uint8_t> chunk(1 << 16);
  while (const size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get()))
    copy_.append(chunk.data(), count, 0);
  if (std::ferror(file.get())) fail("reading failed");
  data_ = copy_.data();
  size_ = copy_.size();
#endif
}

MappedFile::~MappedFile() {
#if defined(ANYDEPTH_MMAP)
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
#elif defined(_WIN32)
  if (data_ != nullptr) UnmapViewOfFile(data_);
#endif
}

const uint8_t* SectionReader::bytes(uint64_t count) {
  const uint64_t from = to_line(at_);
  if (from > size_ || count > size_ - from) throw Error("a section of the file is shorter than its header says");
  at_ = from + count;
  return data_ + static_cast<size_t>(from);
}

const float* SectionReader::floats(uint64_t count) {
  const float* found = take<float>(count);
  for (uint64_t i = 0; i < count; ++i)
    if (!(std::fabs(found[i]) < 1e30f)) throw Error("the file has values that are not finite");
  return found;
}

void SectionReader::end() const {
  if (at_ != size_) throw Error("a section of the file is longer than its header says");
}

}  // namespace anydepth
