#include <stddef.h>
extern void nc_node(void *, const char *);
static void *cur;
int cufftCreate(int *p) {
    static int n;
    *p = ++n;
    return 0;
}
int cufftDestroy(int p) { return 0; }
int cufftSetAutoAllocation(int p, int a) { return 0; }
int cufftXtMakePlanMany(int p, int r, long long *n, long long *in, long long is, long long id, int it, long long *on,
                        long long os, long long od, int ot, long long b, size_t *ws, int et) {
    *ws = 1 << 16;
    return 0;
}
int cufftMakePlanMany64() { return 0; }
int cufftSetStream(int p, void *s) {
    cur = s;
    return 0;
}
int cufftSetWorkArea(int p, void *w) { return 0; }
int cufftXtExec(int p, void *i, void *o, int d) {
    nc_node(cur, "cufftXtExec");
    nc_node(cur, "cufftXtExec(2nd kernel)");
    return 0;
}
int cufftGetVersion(int *v) {
    *v = 12000;
    return 0;
}
int cufftGetSize(int p, size_t *w) {
    *w = 1 << 16;
    return 0;
}
