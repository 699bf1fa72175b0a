"""The tracing worker: runs user code in forked children of a warm process and writes down every operator."""
