"""Threads of numpy's matrix products."""

from contextlib import AbstractContextManager, nullcontext


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread where threadpoolctl is installed (scikit-learn brings it).

    Threads only wait for each other on many matrices as small as an FC. On two busy cores the
    logarithms of NYU's 184 scans took 34 s with two threads and 3 s with one.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")
