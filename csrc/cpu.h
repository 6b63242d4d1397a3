// Which instructions this x86-64 processor and its operating system support. By cpuid: the compiler's own
// __builtin_cpu_supports needs a library that some targets lack.
#pragma once

#include <cpuid.h>

#include <cstdint>

namespace anydepth {

struct CpuFeatures {
  bool avx2 = false;         // with FMA and half precision
  bool avx_vnni = false;
  bool avx512_vnni = false;  // with F, BW, VL and DQ
};

inline CpuFeatures cpu_features() {
  constexpr uint32_t FMA = 1u << 12, OSXSAVE = 1u << 27, F16C = 1u << 29;                           // leaf 1, ecx
  constexpr uint32_t AVX2 = 1u << 5, F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, VL = 1u << 31;   // leaf 7, ebx
  constexpr uint32_t VNNI = 1u << 11;                                                             // leaf 7, ecx
  constexpr uint32_t AVX_VNNI = 1u << 4;  // leaf 7, subleaf 1, eax
  constexpr uint32_t YMM = 0x6, ZMM = 0xe6;  // registers that the operating system saves
  const auto has = [](uint32_t found, uint32_t wanted) { return (found & wanted) == wanted; };
  uint32_t a = 0, b = 0, c = 0, d = 0;
  CpuFeatures found;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, FMA | OSXSAVE | F16C)) return found;
  uint32_t saved = 0, upper = 0;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  found.avx2 = has(saved, YMM) && has(b, AVX2);
  const uint32_t subleaves = a;
  found.avx512_vnni = found.avx2 && has(saved, ZMM) && has(b, F | DQ | BW | VL) && has(c, VNNI);
  found.avx_vnni = found.avx2 && subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, AVX_VNNI);
  return found;
}

}  // namespace anydepth
