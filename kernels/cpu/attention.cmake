# Driver-side sources of the attention ops; their kernels are attention_<isa>.cc.
target_sources(headroom_kernels_cpu PRIVATE attention_ops.cc class_masses_ops.cc column_scores_ops.cc
                                            kv_ops.cc top_k.cc window_scores_ops.cc)
# GCC 12's default allocator spills six of the 32 registers in the largest score tile.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set_source_files_properties(attention_avx512.cc PROPERTIES COMPILE_OPTIONS
                                                             -fira-algorithm=priority)
endif()
