__global__ void kernel(int* out) {
    int never_used = 1;
    *out = 2;
}
