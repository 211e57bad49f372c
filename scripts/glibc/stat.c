/* Functions that glibc exports by these names only since 2.33: `make wheel` links them, so that
 * the wheel runs on older versions. The kernel's struct stat is that of <sys/stat.h> on 64-bit
 * Linux. */

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN int fstatat(int folder, const char *restrict path, struct stat *restrict out, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, out, flags);
}

HIDDEN int fstat(int file, struct stat *out) { return fstatat(file, "", out, AT_EMPTY_PATH); }

HIDDEN int lstat(const char *restrict path, struct stat *restrict out)
{
    return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
