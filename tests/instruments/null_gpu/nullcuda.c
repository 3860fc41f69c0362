#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static void (*node)(void *, const char *);
static void init() {
    if (!node)
        node = dlsym(RTLD_DEFAULT, "nc_node");
}
static char ctx[64];
struct fn {
    char name[256];
};
int cuCtxGetCurrent(void **c) {
    *c = ctx;
    return 0;
}
int cuCtxSetCurrent() { return 0; }
int cuDeviceGet(int *d, int i) {
    *d = 0;
    return 0;
}
int cudaDeviceGetAttribute(int *, int, int);
int cuDeviceGetAttribute(int *v, int a, int d) {
    static int (*f)(int *, int, int);
    if (!f)
        f = dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute");
    return f(v, a, d);
}
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) {
    *f = 0;
    *a = 1;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **c, int d) {
    *c = ctx;
    return 0;
}
int cuDevicePrimaryCtxRelease_v2() { return 0; }
int cuFuncGetAttribute(int *v, int a, void *f) {
    *v = a == 0 ? 1024 : a == 4 ? 64 : 0;
    return 0;
}
int cuFuncSetAttribute() { return 0; }
int cuFuncSetCacheConfig() { return 0; }
int cuGetErrorString(int e, const char **s) {
    *s = "null driver error";
    return 0;
}
int cuGetErrorName(int e, const char **s) {
    *s = "NULL";
    return 0;
}
int cuLaunchCooperativeKernel() { return 0; }
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c_, unsigned d, unsigned e, unsigned g, unsigned s,
                   void *st, void **p, void **x) {
    init();
    node(st, ((struct fn *)f)->name);
    return 0;
}
struct cfg {
    unsigned g[3], b[3], sh;
    void *stream;
};
int cuLaunchKernelEx(const struct cfg *k, void *f, void **p, void **x) {
    init();
    if (k->b[0] * k->b[1] * k->b[2] > 1024)
        return 1;
    node(k->stream, ((struct fn *)f)->name);
    return 0;
}
int cuLinkAddData_v2() { return 0; }
int cuLinkComplete() { return 0; }
int cuLinkCreate_v2() { return 0; }
#include <stdlib.h>
int cuModuleGetFunction(void **f, void *m, const char *n) {
    struct fn *x = malloc(sizeof *x);
    snprintf(x->name, 256, "triton:%s", n);
    *f = x;
    return 0;
}
int cuModuleLoad(void **m, const char *n) {
    *m = ctx;
    return 0;
}
int cuModuleLoadData(void **m, const void *d) {
    *m = ctx;
    return 0;
}
int cuModuleLoadDataEx(void **m, const void *d, unsigned n, void *o, void **v) {
    *m = ctx;
    return 0;
}
int cuModuleUnload() { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, uint64_t s) {
    *n = 2;
    return 0;
}
int cuOccupancyMaxActiveClusters(int *n, void *f, void *c) {
    *n = 2;
    return 0;
}
int cuPointerGetAttribute(void *v, int a, uint64_t p) {
    *(uint64_t *)v = p;
    return 0;
}
int cuTensorMapEncodeTiled() { return 0; }
int cuInit() { return 0; }
int cuDeviceGetCount(int *n) {
    *n = 1;
    return 0;
}
int cuDriverGetVersion(int *v) {
    *v = 13000;
    return 0;
}
int cuCtxGetLimit(uint64_t *v, int l) {
    *v = 0;
    return 0;
}
int cuCtxSetLimit() { return 0; }
int cuCtxGetDevice(int *d) {
    *d = 0;
    return 0;
}
int cuCtxSynchronize() { return 0; }
int cuDeviceGetName(char *n, int l, int d) {
    strncpy(n, "NVIDIA H200", l);
    return 0;
}
int cuMemGetInfo_v2() { return 0; }
int cuDeviceTotalMem_v2() { return 0; }
int cuGetProcAddress_v2() { return 0; }
int cuGetProcAddress() { return 0; }
int cuStreamIsCapturing(void *s, int *st) {
    *st = 0;
    return 0;
}
int cuMemAlloc_v2() { return 0; }
int cuMemFree_v2() { return 0; }
int cuCtxPushCurrent_v2() { return 0; }
int cuCtxPopCurrent_v2() { return 0; }
int cuStreamGetCaptureInfo_v2() { return 0; }
int cuMemcpyHtoD_v2() { return 0; }
int cuMemcpyDtoH_v2() { return 0; }
int cuStreamSynchronize() { return 0; }
