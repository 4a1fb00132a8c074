/* LD_PRELOAD library: counts the calls that change files below one folder, logs them, and makes one of them go wrong.

   Nothing happens before faults_arm. A call that is not about the folder goes straight to the C library. The log is
   written with raw system calls, each record before the call returns, so that it survives a kill. Its form is that of
   shim.py: a line "number kind result path\tsecond path\tdetail\tsize", then as many bytes, which a write wrote. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum Action { NOTHING, FAIL, SHORT, KILL_BEFORE, KILL_AFTER };

static char folder[PATH_MAX];
static size_t folder_length;
static int log_fd = -1;
static int action, fault_errno, times; /* times: how many calls from `at` on go wrong; 0: all of them */
static long at;
static long count;
static int armed;

/* Watch `where` (an absolute path without links), log to `log`, and do `what` at call number `n`, counted from 1. */
void faults_arm(const char *where, const char *log, int what, int error, long n, int how_often) {
    snprintf(folder, sizeof folder, "%s", where);
    folder_length = strlen(folder);
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    action = what, fault_errno = error, at = n, times = how_often, count = 0;
    armed = 1;
}

void faults_disarm(void) {
    armed = 0;
    syscall(SYS_close, log_fd);
}

/* ---- which calls are counted */

static int below(const char *path) {
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

/* The absolute path of a file descriptor; 0 if it has none. */
static int path_of(int fd, char *to) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, to, PATH_MAX - 1);
    to[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* Whether a path, relative to a folder's descriptor, is below the watched folder; `to` gets it as an absolute one. */
static int watched(int dirfd, const char *path, char *to) {
    to[0] = 0;
    if (!armed || !path) return 0;
    int saved = errno, length = 0;
    if (path[0] != '/') {
        if (dirfd == AT_FDCWD ? !getcwd(to, PATH_MAX) : !path_of(dirfd, to)) to[0] = 0;
        length = (int)strlen(to);
        to[length++] = '/';
    }
    while (path[0] == '.' && path[1] == '/') path += 2;
    snprintf(to + length, (size_t)(PATH_MAX - length), "%s", path);
    errno = saved;
    return below(to);
}

static int watched_fd(int fd, char *to) {
    to[0] = 0;
    if (!armed || fd == log_fd) return 0;
    int saved = errno, known = path_of(fd, to);
    errno = saved;
    return known && below(to);
}

/* ---- what happens to a call */

static int wrong(long n) { return n >= at && at > 0 && (!times || n < at + times); }

static void record(long n, const char *kind, long result, const char *path, const char *other, long detail,
                   const void *bytes, long size) {
    char line[2 * PATH_MAX + 128];
    int length = snprintf(line, sizeof line, "%ld %s %ld %s\t%s\t%ld\t%ld\n", n, kind, result, path, other, detail, size);
    struct iovec parts[2] = {{line, (size_t)length}, {(void *)bytes, (size_t)size}};
    syscall(SYS_writev, log_fd, parts, size ? 2 : 1);
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Before the real call. Returns its number, or 0 if the caller must fail with errno. */
static long begin(const char *kind, const char *path, const char *other) {
    long n = __sync_add_and_fetch(&count, 1);
    if (!wrong(n)) return n;
    if (action == KILL_BEFORE) {
        record(n, kind, -EINTR, path, other, 0, "", 0);
        die();
    }
    if (action == FAIL) {
        record(n, kind, -fault_errno, path, other, 0, "", 0);
        errno = fault_errno;
        return 0;
    }
    return n;
}

/* After the real call. */
static long end(long n, const char *kind, long result, const char *path, const char *other, long detail,
                const void *bytes) {
    int saved = errno;
    record(n, kind, result < 0 ? -saved : result, path, other, detail, bytes, bytes && result > 0 ? result : 0);
    if (action == KILL_AFTER && wrong(n)) die();
    errno = saved;
    return result;
}

static size_t shortened(long n, size_t size) { return action == SHORT && wrong(n) && size > 1 ? size / 2 : size; }

/* The C library's function of this name. */
#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define COUNTED(kind, path, other, detail, call) \
    long n_ = begin(kind, path, other); \
    if (!n_) return -1; \
    return (int)end(n_, kind, call, path, other, detail, 0)

/* ---- the calls */

static int opened(int dirfd, const char *path, int flags, mode_t mode) {
    REAL(int, "openat", int, const char *, int, ...);
    char full[PATH_MAX];
    if (!watched(dirfd, path, full)) return real(dirfd, path, flags, mode);
    const char *kind = flags & O_CREAT ? "create" : "open";
    struct stat before;
    int fresh = flags & O_TRUNC || (flags & O_CREAT && fstatat(dirfd, path, &before, AT_SYMLINK_NOFOLLOW));
    COUNTED(kind, full, "", fresh, real(dirfd, path, flags, mode));
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(more, int) : 0; \
        va_end(more); \
        return opened(AT_FDCWD, path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int dirfd, const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(more, int) : 0; \
        va_end(more); \
        return opened(dirfd, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* Output is logged too, with number 0: it tells when a snapshot was promised. */
ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    char full[PATH_MAX];
    if (armed && fd == STDOUT_FILENO) {
        ssize_t done = real(fd, bytes, size);
        record(0, "say", done, "", "", 0, bytes, done > 0 ? (long)done : 0);
        return done;
    }
    if (!watched_fd(fd, full)) return real(fd, bytes, size);
    long n = begin("write", full, "");
    if (!n) return -1;
    off_t where = lseek(fd, 0, SEEK_CUR);
    return end(n, "write", real(fd, bytes, shortened(n, size)), full, "", (long)where, bytes);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *bytes, size_t size, off_t where) { \
        REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t); \
        char full[PATH_MAX]; \
        if (!watched_fd(fd, full)) return real(fd, bytes, size, where); \
        long n = begin("write", full, ""); \
        if (!n) return -1; \
        return end(n, "write", real(fd, bytes, shortened(n, size), where), full, "", (long)where, bytes); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

/* As one write of its first part: the caller goes on with the rest, as after any short write. */
ssize_t writev(int fd, const struct iovec *parts, int many) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    char full[PATH_MAX];
    if (!watched_fd(fd, full)) return real(fd, parts, many);
    while (many > 1 && !parts->iov_len) parts++, many--;
    return write(fd, parts->iov_base, parts->iov_len);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    char a[PATH_MAX], b[PATH_MAX];
    int inside = watched(from_fd, from, a);
    if (!(watched(to_fd, to, b) || inside)) return real(from_fd, from, to_fd, to, flags);
    COUNTED("rename", a, b, 0, real(from_fd, from, to_fd, to, flags));
}
int renameat(int from_fd, const char *from, int to_fd, const char *to) { return renameat2(from_fd, from, to_fd, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    char a[PATH_MAX], b[PATH_MAX];
    int inside = watched(from_fd, from, a);
    if (!(watched(to_fd, to, b) || inside)) return real(from_fd, from, to_fd, to, flags);
    COUNTED("link", a, b, 0, real(from_fd, from, to_fd, to, flags));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int mkdirat(int dirfd, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    char full[PATH_MAX];
    if (!watched(dirfd, path, full)) return real(dirfd, path, mode);
    COUNTED("mkdir", full, "", 0, real(dirfd, path, mode));
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int dirfd, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    char full[PATH_MAX];
    if (!watched(dirfd, path, full)) return real(dirfd, path, flags);
    COUNTED(flags & AT_REMOVEDIR ? "rmdir" : "unlink", full, "", 0, real(dirfd, path, flags));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int fchmodat(int dirfd, const char *path, mode_t mode, int flags) {
    REAL(int, "fchmodat", int, const char *, mode_t, int);
    char full[PATH_MAX];
    if (!watched(dirfd, path, full)) return real(dirfd, path, mode, flags);
    COUNTED("chmod", full, "", 0, real(dirfd, path, mode, flags));
}
int chmod(const char *path, mode_t mode) { return fchmodat(AT_FDCWD, path, mode, 0); }

#define ON_A_DESCRIPTOR(name, kind, detail, parameters, arguments, ...) \
    int name parameters { \
        REAL(int, #name, __VA_ARGS__); \
        char full[PATH_MAX]; \
        if (!watched_fd(fd, full)) return real arguments; \
        COUNTED(kind, full, "", detail, real arguments); \
    }
ON_A_DESCRIPTOR(fsync, "fsync", 0, (int fd), (fd), int)
ON_A_DESCRIPTOR(fdatasync, "fsync", 0, (int fd), (fd), int)
ON_A_DESCRIPTOR(fchmod, "chmod", 0, (int fd, mode_t mode), (fd, mode), int, mode_t)
ON_A_DESCRIPTOR(flock, "flock", 0, (int fd, int how), (fd, how), int, int)
ON_A_DESCRIPTOR(ftruncate, "truncate", (long)size, (int fd, off_t size), (fd, size), int, off_t)
ON_A_DESCRIPTOR(ftruncate64, "truncate", (long)size, (int fd, off_t size), (fd, size), int, off_t)
ON_A_DESCRIPTOR(fallocate, "truncate", (long)(from + size), (int fd, int how, off_t from, off_t size), (fd, how, from, size),
                int, int, off_t, off_t)

/* It returns its error, and leaves errno alone. */
int posix_fallocate(int fd, off_t from, off_t size) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    char full[PATH_MAX];
    if (!watched_fd(fd, full)) return real(fd, from, size);
    long n = begin("truncate", full, "");
    if (!n) return errno;
    int failed = real(fd, from, size);
    end(n, "truncate", failed ? -failed : 0, full, "", (long)(from + size), 0);
    return failed;
}
