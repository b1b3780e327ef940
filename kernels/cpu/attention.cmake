# Driver-side sources of the attention ops; their kernels are attention_<isa>.cc.
target_sources(headroom_kernels_cpu PRIVATE attention_ops.cc kv_ops.cc top_k.cc
                                            window_scores_ops.cc)
