/* compiler.h - compiler-specific attributes and intrinsics that C11 lacks. This header selects by compiler. */
#ifndef LS_BASE_COMPILER_H
#define LS_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

/* LS_PRINTF(f, a): argument f is a printf(3) format for the arguments from a on; checked where the compiler can.
 * LS_THREAD_LOCAL: the variable exists once per thread; Microsoft's compiler does not know C11's _Thread_local.
 * LS_NOINLINE: the function is never inlined. LS_INLINE, in place of `inline`: it always is. LS_PREFETCH(p): prefetch
 * the cache line at p for writing; p may be invalid. ls_high_bit(n): the index of the highest set bit, 0 to 63; n is
 * not 0. LS_POISON(p, n): AddressSanitizer reports an access to these bytes until LS_UNPOISON(p, n). */
#if defined(_MSC_VER)
unsigned char _BitScanReverse64(unsigned long *place, unsigned __int64 n); /* as declared in <intrin.h> */
#pragma intrinsic(_BitScanReverse64)
#define LS_PRINTF(f, a)
#define LS_THREAD_LOCAL __declspec(thread)
#define LS_NOINLINE     __declspec(noinline)
#if defined(__clang__) /* clang-cl; with the headers of mingw-w64 __forceinline is extern */
#define LS_INLINE inline __attribute__((always_inline))
#else
#define LS_INLINE __forceinline
#endif
#define LS_PREFETCH(p) ((void)(p))
static inline unsigned ls_high_bit(uint64_t n)
{
    unsigned long place;
    (void)_BitScanReverse64(&place, n);
    return place;
}
#elif defined(__GNUC__)
#if defined(__MINGW32__) && !defined(__clang__) /* there `printf` means the formats of Microsoft's old library */
#define LS_PRINTF(f, a) __attribute__((format(gnu_printf, f, a)))
#else
#define LS_PRINTF(f, a) __attribute__((format(printf, f, a)))
#endif
#define LS_THREAD_LOCAL _Thread_local
#define LS_NOINLINE     __attribute__((noinline))
#define LS_INLINE       inline __attribute__((always_inline))
#define LS_PREFETCH(p)  __builtin_prefetch((p), 1)
static inline unsigned ls_high_bit(uint64_t n)
{
    return 63 - (unsigned)__builtin_clzll(n);
}
#else
#define LS_PRINTF(f, a)
#define LS_THREAD_LOCAL _Thread_local
#define LS_NOINLINE
#define LS_INLINE      inline
#define LS_PREFETCH(p) ((void)(p))
static inline unsigned ls_high_bit(uint64_t n)
{
    unsigned place = 0;
    while (n >>= 1) place++;
    return place;
}
#endif

#if defined(__SANITIZE_ADDRESS__)
void __asan_poison_memory_region(void const volatile *at, size_t bytes); /* <sanitizer/asan_interface.h> */
void __asan_unpoison_memory_region(void const volatile *at, size_t bytes);
#define LS_POISON(p, n)   __asan_poison_memory_region((p), (n))
#define LS_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define LS_POISON(p, n)   ((void)(p), (void)(n))
#define LS_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#endif
