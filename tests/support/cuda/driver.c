/* A libcuda.so.1 for tests on machines without an NVIDIA driver. It plays two parts:

   1. A driver as FAKE_CUDA says: "init status,CUDA version,cards,capability", by default "0,13000,1,90". What
      minidnn/backends/cuda/packages.py asks of a driver, it answers.
   2. What cuDNN wants of a driver while it makes plans from a card's properties. Its runtime-compiled engines load the
      kernel that they compiled; here that "succeeds" and nothing is loaded. Whatever would need a card fails with
      CUDA_ERROR_STUB_LIBRARY (34), so that nothing can seem to have run.

   Build: gcc -shared -fPIC -Wl,-soname,libcuda.so.1 driver.c -o libcuda.so.1 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, STUB = 34 };
enum { CLOCK = 13, MULTIPROCESSORS = 16, INTEGRATED = 18, MEMORY_CLOCK = 36, BUS = 37, L2 = 38 };
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };

typedef struct { int init, version, cards, capability; } State;

static State state(void) {
    State s = {SUCCESS, 13000, 1, 90};
    const char *given = getenv("FAKE_CUDA");
    if (given) sscanf(given, "%d,%d,%d,%d", &s.init, &s.version, &s.cards, &s.capability);
    return s;
}

int cuInit(unsigned flags) { (void)flags; return state().init; }
int cuDriverGetVersion(int *version) { *version = state().version; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = state().cards; return SUCCESS; }
int cuDeviceGet(int *device, int number) { *device = number; return number < state().cards ? SUCCESS : 101; }
int cuDeviceGetName(char *name, int room, int device) {
    const char *given = getenv("FAKE_CARD");
    if (given) snprintf(name, room, "%s", given);
    else snprintf(name, room, "Fake card %d", device);
    return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 8ul << 30; return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (attribute == CAPABILITY_MAJOR) *value = state().capability / 10;
    else if (attribute == CAPABILITY_MINOR) *value = state().capability % 10;
    else if (attribute == MULTIPROCESSORS) *value = 20;
    else if (attribute == CLOCK) *value = 1500000; /* kHz */
    else if (attribute == MEMORY_CLOCK) *value = 7000000;
    else if (attribute == BUS) *value = 128;
    else if (attribute == L2) *value = 2 << 20;
    else if (attribute == INTEGRATED) *value = 0;
    else return INVALID_VALUE;
    return SUCCESS;
}

/* ---- for cuDNN's runtime-compiled engines: handles that nobody may follow */

static int handle(void **out, size_t value) { *out = (void *)value; return SUCCESS; }

int cuLibraryLoadData(void **library, const void *code, ...) { (void)code; return handle(library, 0x100); }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) { (void)library, (void)name; return handle(kernel, 0x200); }
int cuKernelGetFunction(void **function, void *kernel) { (void)kernel; return handle(function, 0x300); }
int cuModuleLoadData(void **module, const void *code) { (void)code; return handle(module, 0x400); }
int cuModuleGetFunction(void **function, void *module, const char *name) { (void)module, (void)name; return handle(function, 0x500); }
int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
    (void)attribute, (void)kernel, (void)device;
    *value = 0;
    return SUCCESS;
}
int cuOccupancyMaxPotentialClusterSize(int *size, ...) { *size = 8; return SUCCESS; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "the driver of minidnn's tests"; return SUCCESS; }
int cuGetErrorName(int error, const char **text) { (void)error; *text = "CUDA_ERROR_STUB_LIBRARY"; return SUCCESS; }

#define NOTHING(name) int name() { return SUCCESS; }
NOTHING(cuKernelSetAttribute) NOTHING(cuLibraryUnload) NOTHING(cuModuleUnload)
NOTHING(cuTensorMapEncodeIm2col) NOTHING(cuTensorMapEncodeTiled)

#define NO_CARD(name) int name() { return STUB; }
NO_CARD(cuCtxGetCurrent) NO_CARD(cuCtxGetLimit) NO_CARD(cuCtxPopCurrent) NO_CARD(cuCtxPushCurrent)
NO_CARD(cuStreamGetCtx) NO_CARD(cuLinkCreate) NO_CARD(cuLinkAddData) NO_CARD(cuLinkComplete) NO_CARD(cuLinkDestroy)
NO_CARD(cuLaunchKernel) NO_CARD(cuLaunchCooperativeKernel) NO_CARD(cuLaunchKernelEx) NO_CARD(cuLibraryLoadFromFile)
