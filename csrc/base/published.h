/* Reading what a pointer points at that another thread has published by a release. The loads
 * depend on the pointer, so every processor that this runs on does them after its own: an acquire
 * is not needed for them. And to GCC 12 it is a barrier, after which the arguments that a wrapper
 * has on its stack must be written again before it can go on to the library with them: 4 to 5 ns
 * more of a call (Zen 3), as the library then waits for those stores. */
#ifndef TEMPI_BASE_PUBLISHED_H
#define TEMPI_BASE_PUBLISHED_H

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define TEMPI_PUBLISHED_ORDER __ATOMIC_ACQUIRE
#endif
#endif
#ifdef __SANITIZE_THREAD__ /* it knows nothing of dependencies */
#define TEMPI_PUBLISHED_ORDER __ATOMIC_ACQUIRE
#endif
#ifndef TEMPI_PUBLISHED_ORDER
#define TEMPI_PUBLISHED_ORDER __ATOMIC_RELAXED
#endif

#define TEMPI_PUBLISHED(pointer) __atomic_load_n(&(pointer), TEMPI_PUBLISHED_ORDER)

/* Reading what other threads write, in a word, and only to compare it: plain, as a compiler then
 * compares it where it lies, in fewer bytes of code. */
#if TEMPI_PUBLISHED_ORDER == __ATOMIC_RELAXED
#define TEMPI_GLANCE(word) (word)
#else
#define TEMPI_GLANCE(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#endif

#endif
