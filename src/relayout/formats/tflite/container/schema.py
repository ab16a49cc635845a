"""The TFLite schema as rows: what each table holds, slot by slot, and the names behind the numbers.

A row reads `name:type` or `name:type=default`; its position is its slot; `_` is a slot no longer in use. A union takes
two slots, the first of which (`..._type`) tells its member. Facts only: the mechanism is in `flatbuffer.py`. A test
compares these rows with two published bindings, field by field.
"""

from __future__ import annotations

from collections.abc import Mapping

from relayout.formats.flatbuffer import Schema, rows

# Which table of options each builtin operator has; those that are not named here have none that a reader looks at.

_OPTIONS_OF = """
    ADD ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D=Pool2D BATCH_MATMUL=BatchMatMul
    BIDIRECTIONAL_SEQUENCE_LSTM=BidirectionalSequenceLSTM BIDIRECTIONAL_SEQUENCE_RNN=BidirectionalSequenceRNN
    BUCKETIZE CALL_ONCE CAST CONCATENATION CONV_2D=Conv2D CONV_3D=Conv3D CONV_3D_TRANSPOSE=Conv3D CUMSUM
    DEPTHWISE_CONV_2D=DepthwiseConv2D DEPTH_TO_SPACE DILATE DIV EMBEDDING_LOOKUP_SPARSE FAKE_QUANT FULLY_CONNECTED
    GATHER GELU HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE IF L2_NORMALIZATION=L2Norm L2_POOL_2D=Pool2D
    LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LSTM=LSTM MAX_POOL_2D=Pool2D MEAN=Reducer MIRROR_PAD MUL
    MULTINOMIAL=Random ONE_HOT PACK RANDOM_STANDARD_NORMAL=Random RANDOM_UNIFORM=Random READ_VARIABLE
    REDUCE_ALL=Reducer REDUCE_ANY=Reducer REDUCE_MAX=Reducer REDUCE_MIN=Reducer REDUCE_PROD=Reducer REDUCE_WINDOW
    RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE RFFT2D RNN=RNN SHAPE SOFTMAX SPACE_TO_DEPTH
    SPARSE_TO_DENSE SPLIT SPLIT_V SQUEEZE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CASE STABLEHLO_COMPARE
    STABLEHLO_COMPOSITE=StableHLOComposite STABLEHLO_CONCATENATE STABLEHLO_CONVOLUTION STABLEHLO_DOT_GENERAL
    STABLEHLO_DYNAMIC_SLICE STABLEHLO_GATHER STABLEHLO_IOTA STABLEHLO_PAD STABLEHLO_REDUCE STABLEHLO_REDUCE_WINDOW
    STABLEHLO_SCATTER STABLEHLO_SLICE STABLEHLO_SORT STABLEHLO_TRANSPOSE STABLEHLO_WHILE STRIDED_SLICE SUB SUM=Reducer
    SVDF=SVDF TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM=UnidirectionalSequenceLSTM
    UNIDIRECTIONAL_SEQUENCE_RNN=SequenceRNN UNIQUE UNPACK VAR_HANDLE WHILE
"""
OPTIONS: Mapping[str, str] = {
    name: f"{kind or ''.join(map(str.capitalize, name.split('_')))}Options"
    for name, _, kind in (word.partition("=") for word in _OPTIONS_OF.split())
}
"""Operator -> its table of options, which has the operator's name where none is given behind a `=`."""


_MODEL = {  # the tables that make up a model
    "Model": (
        "version:uint32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:string buffers:[Buffer] "
        "metadata_buffer:[int32] metadata:[Metadata] signature_defs:[SignatureDef] "
        "external_buffer_groups:[ExternalBufferGroup] external_buffers:[ExternalBuffer]"
    ),
    "SubGraph": (
        "tensors:[Tensor] inputs:[int32] outputs:[int32] operators:[Operator] name:string debug_metadata_index:int32=-1"
    ),
    "Tensor": (
        "shape:[int32] type:TensorType buffer:uint32 name:string quantization:QuantizationParameters "
        "is_variable:bool sparsity:SparsityParameters shape_signature:[int32] has_rank:bool "
        "variant_tensors:[VariantSubType] external_buffer:uint32"
    ),
    "QuantizationParameters": (
        "min:[float32] max:[float32] scale:[float32] zero_point:[int64] details_type:uint8 "
        "details:QuantizationDetails quantized_dimension:int32"
    ),
    "CustomQuantization": "custom:[uint8]",
    "BlockwiseQuantization": "scales:int32 zero_points:int32 block_size:int32 block_shape:[int32]",
    "MultiAxisQuantization": "scales:int32 zero_points:int32 block_size:int32 quantized_dimensions:[int32]",
    "SparsityParameters": "traversal_order:[int32] block_map:[int32] dim_metadata:[DimensionMetadata]",
    "DimensionMetadata": (
        "format:DimensionType dense_size:int32 array_segments_type:uint8 array_segments:SparseIndexVector "
        "array_indices_type:uint8 array_indices:SparseIndexVector"
    ),
    "Int32Vector": "values:[int32]",
    "Uint16Vector": "values:[uint16]",
    "Uint8Vector": "values:[uint8]",
    "VariantSubType": "shape:[int32] type:TensorType has_rank:bool",
    "Buffer": "data:[uint8] offset:uint64 size:uint64",
    "ExternalBufferGroup": "name:string",
    "ExternalBuffer": "id:uint32 group:uint32 offset:uint64 length:uint64 packing:string",
    "OperatorCode": "deprecated_builtin_code:int8 custom_code:string version:int32=1 builtin_code:BuiltinOperator",
    "Operator": (
        "opcode_index:uint32 inputs:[int32] outputs:[int32] builtin_options_type:uint8 "
        "builtin_options:BuiltinOptions custom_options:[uint8] custom_options_format:int8 "
        "mutating_variable_inputs:[bool] intermediates:[int32] large_custom_options_offset:uint64 "
        "large_custom_options_size:uint64 builtin_options_2_type:uint8 builtin_options_2:BuiltinOptions2 "
        "debug_metadata_index:int32=-1"
    ),
    "Metadata": "name:string buffer:uint32",
    "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:string _ subgraph_index:uint32",
    "TensorMap": "name:string tensor_index:uint32",
}

_OPTIONS = {  # the options of operators
    "AddOptions": "fused_activation_function:ActivationFunctionType pot_scale_int16:bool=True",
    "ArgMaxOptions": "output_type:TensorType",
    "ArgMinOptions": "output_type:TensorType",
    "BatchMatMulOptions": "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool",
    "BidirectionalSequenceLSTMOptions": (
        "fused_activation_function:ActivationFunctionType cell_clip:float32 proj_clip:float32 merge_outputs:bool "
        "time_major:bool=True asymmetric_quantize_inputs:bool"
    ),
    "BidirectionalSequenceRNNOptions": (
        "time_major:bool fused_activation_function:ActivationFunctionType merge_outputs:bool "
        "asymmetric_quantize_inputs:bool"
    ),
    "BucketizeOptions": "boundaries:[float32]",
    "CallOnceOptions": "init_subgraph_index:int32",
    "CallOptions": "subgraph:uint32",
    "CastOptions": "in_data_type:TensorType out_data_type:TensorType",
    "ConcatEmbeddingsOptions": "num_channels:int32 num_columns_per_channel:[int32] embedding_dim_per_channel:[int32]",
    "ConcatenationOptions": "axis:int32 fused_activation_function:ActivationFunctionType",
    "Conv2DOptions": (
        "padding:Padding stride_w:int32 stride_h:int32 fused_activation_function:ActivationFunctionType "
        "dilation_w_factor:int32=1 dilation_h_factor:int32=1 quantized_bias_type:TensorType"
    ),
    "Conv3DOptions": (
        "padding:Padding stride_d:int32 stride_w:int32 stride_h:int32 "
        "fused_activation_function:ActivationFunctionType dilation_d_factor:int32=1 dilation_w_factor:int32=1 "
        "dilation_h_factor:int32=1"
    ),
    "CumsumOptions": "exclusive:bool reverse:bool",
    "DepthToSpaceOptions": "block_size:int32",
    "DepthwiseConv2DOptions": (
        "padding:Padding stride_w:int32 stride_h:int32 depth_multiplier:int32 "
        "fused_activation_function:ActivationFunctionType dilation_w_factor:int32=1 dilation_h_factor:int32=1"
    ),
    "DivOptions": "fused_activation_function:ActivationFunctionType",
    "EmbeddingLookupSparseOptions": "combiner:int8",
    "FakeQuantOptions": "min:float32 max:float32 num_bits:int32 narrow_range:bool",
    "FullyConnectedOptions": (
        "fused_activation_function:ActivationFunctionType weights_format:FullyConnectedOptionsWeightsFormat "
        "keep_num_dims:bool asymmetric_quantize_inputs:bool quantized_bias_type:TensorType quant_spec:[uint8]"
    ),
    "GatherOptions": "axis:int32 batch_dims:int32",
    "GeluOptions": "approximate:bool",
    "HashtableOptions": "table_id:int32 key_dtype:int8 value_dtype:int8",
    "IfOptions": "then_subgraph_index:int32 else_subgraph_index:int32",
    "L2NormOptions": "fused_activation_function:ActivationFunctionType",
    "LSHProjectionOptions": "type:int8",
    "LSTMOptions": (
        "fused_activation_function:ActivationFunctionType cell_clip:float32 proj_clip:float32 "
        "kernel_type:LSTMKernelType asymmetric_quantize_inputs:bool"
    ),
    "LeakyReluOptions": "alpha:float32",
    "LocalResponseNormalizationOptions": "radius:int32 bias:float32 alpha:float32 beta:float32",
    "MirrorPadOptions": "mode:MirrorPadMode",
    "MulOptions": "fused_activation_function:ActivationFunctionType",
    "OneHotOptions": "axis:int32",
    "PackOptions": "values_count:int32 axis:int32",
    "Pool2DOptions": (
        "padding:Padding stride_w:int32 stride_h:int32 filter_width:int32 filter_height:int32 "
        "fused_activation_function:ActivationFunctionType"
    ),
    "RNNOptions": "fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool",
    "RandomOptions": "seed:int64 seed2:int64",
    "ReduceWindowOptions": "reduce_function:int32",
    "ReducerOptions": "keep_dims:bool",
    "ReshapeOptions": "new_shape:[int32]",
    "ResizeBilinearOptions": "_ _ align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
    "ReverseSequenceOptions": "seq_dim:int32 batch_dim:int32",
    "SVDFOptions": "rank:int32 fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool",
    "SequenceRNNOptions": (
        "time_major:bool fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool"
    ),
    "ShapeOptions": "out_type:TensorType",
    "SkipGramOptions": "ngram_size:int32 max_skip_size:int32 include_all_ngrams:bool",
    "SoftmaxOptions": "beta:float32",
    "SpaceToDepthOptions": "block_size:int32",
    "SparseToDenseOptions": "validate_indices:bool",
    "SplitOptions": "num_splits:int32",
    "SplitVOptions": "num_splits:int32",
    "SqueezeOptions": "squeeze_dims:[int32]",
    "StableHLOCompositeOptions": (
        "name:string decomposition_subgraph_index:int32 composite_attributes:[uint8] "
        "composite_attributes_format:int8 version:int32"
    ),
    "StablehloBroadcastInDimOptions": "broadcast_dimensions:[int64]",
    "StablehloCaseOptions": "branch_subgraph_indices:[int32]",
    "StablehloCompareOptions": "comparison_direction:uint32 compare_type:uint32",
    "StablehloConcatenateOptions": "dimension:int64",
    "StablehloConvolutionOptions": (
        "window_strides:[int64] padding:[int64] lhs_dilation:[int64] rhs_dilation:[int64] window_reversal:[bool] "
        "input_batch_dimension:int64 input_feature_dimension:int64 input_spatial_dimensions:[int64] "
        "kernel_input_feature_dimension:int64 kernel_output_feature_dimension:int64 "
        "kernel_spatial_dimensions:[int64] output_batch_dimension:int64 output_feature_dimension:int64 "
        "output_spatial_dimensions:[int64] feature_group_count:int64 batch_group_count:int64 "
        "precision_config:[uint32]"
    ),
    "StablehloCustomCallOptions": (
        "call_target_name:string has_side_effect:bool backend_config:string api_version:int32 "
        "called_computations:[int32] custom_attributes:[uint8]"
    ),
    "StablehloDotGeneralOptions": (
        "lhs_batching_dimensions:[int64] rhs_batching_dimensions:[int64] lhs_contracting_dimensions:[int64] "
        "rhs_contracting_dimensions:[int64] precision_config:[uint32]"
    ),
    "StablehloDynamicSliceOptions": "slice_sizes:[int64]",
    "StablehloGatherOptions": (
        "offset_dims:[int64] collapsed_slice_dims:[int64] start_index_map:[int64] index_vector_dim:int64 "
        "slice_sizes:[int64] indices_are_sorted:bool"
    ),
    "StablehloIotaOptions": "iota_dimension:int64",
    "StablehloPadOptions": "edge_padding_low:[int64] edge_padding_high:[int64] interior_padding:[int64]",
    "StablehloReduceOptions": "dimensions:[int64] body_subgraph_index:int32",
    "StablehloReduceWindowOptions": (
        "window_dimensions:[int64] window_strides:[int64] base_dilations:[int64] window_dilations:[int64] "
        "padding:[int64] body_subgraph_index:int32"
    ),
    "StablehloRngBitGeneratorOptions": "algorithm:int8",
    "StablehloScatterOptions": (
        "indices_are_sorted:bool update_window_dims:[int64] inserted_window_dims:[int64] "
        "scatter_dims_to_operand_dims:[int64] index_vector_dim:int64 unique_indices:bool "
        "update_computation_subgraph_index:int32"
    ),
    "StablehloSliceOptions": "start_indices:[int64] limit_indices:[int64] strides:[int64]",
    "StablehloSortOptions": "dimension:int64 is_stable:bool comparator_subgraph_index:int32",
    "StablehloTransposeOptions": "permutation:[int64]",
    "StablehloWhileOptions": "cond_subgraph_index:int32 body_subgraph_index:int32",
    "StridedSliceOptions": (
        "begin_mask:int32 end_mask:int32 ellipsis_mask:int32 new_axis_mask:int32 shrink_axis_mask:int32 offset:bool"
    ),
    "SubOptions": "fused_activation_function:ActivationFunctionType pot_scale_int16:bool=True",
    "TransposeConvOptions": (
        "padding:Padding stride_w:int32 stride_h:int32 fused_activation_function:ActivationFunctionType "
        "quantized_bias_type:TensorType"
    ),
    "UnidirectionalSequenceLSTMOptions": (
        "fused_activation_function:ActivationFunctionType cell_clip:float32 proj_clip:float32 time_major:bool "
        "asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool"
    ),
    "UniqueOptions": "idx_out_type:TensorType=2",
    "UnpackOptions": "num:int32 axis:int32",
    "VarHandleOptions": "container:string shared_name:string",
    "WhileOptions": "cond_subgraph_index:int32 body_subgraph_index:int32",
}

_EMPTY = """
ATan2Options AbsOptions AddNOptions AssignVariableOptions BatchToSpaceNDOptions BitcastOptions BitwiseXorOptions
BroadcastToOptions CosOptions DensifyOptions DequantizeOptions DilateOptions DynamicUpdateSliceOptions
EqualOptions ExpOptions ExpandDimsOptions FillOptions FloorDivOptions FloorModOptions GatherNdOptions
GreaterEqualOptions GreaterOptions HardSwishOptions HashtableFindOptions HashtableImportOptions
HashtableSizeOptions LessEqualOptions LessOptions LogSoftmaxOptions LogicalAndOptions LogicalNotOptions
LogicalOrOptions MatrixDiagOptions MatrixSetDiagOptions MaximumMinimumOptions NegOptions
NonMaxSuppressionV4Options NonMaxSuppressionV5Options NotEqualOptions PadOptions PadV2Options PowOptions
QuantizeOptions RangeOptions RankOptions ReadVariableOptions ReverseV2Options Rfft2dOptions RightShiftOptions
ScatterNdOptions SegmentSumOptions SelectOptions SelectV2Options SignOptions SliceOptions SpaceToBatchNDOptions
SquareOptions SquaredDifferenceOptions StablehloShiftLeftOptions TileOptions TopKV2Options TransposeOptions
UnsortedSegmentMaxOptions UnsortedSegmentMinOptions UnsortedSegmentProdOptions UnsortedSegmentSumOptions
WhereOptions ZerosLikeOptions
"""
"""Options without a field."""

_OPTIONS_UNION = """
NONE Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions SVDFOptions
RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions L2NormOptions
LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions ReshapeOptions SkipGramOptions
SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions PadOptions GatherOptions BatchToSpaceNDOptions
SpaceToBatchNDOptions TransposeOptions ReducerOptions SubOptions DivOptions SqueezeOptions SequenceRNNOptions
StridedSliceOptions ExpOptions TopKV2Options SplitOptions LogSoftmaxOptions CastOptions DequantizeOptions
MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions PadV2Options GreaterOptions GreaterEqualOptions
LessEqualOptions SelectOptions SliceOptions TransposeConvOptions SparseToDenseOptions TileOptions
ExpandDimsOptions EqualOptions NotEqualOptions ShapeOptions PowOptions ArgMinOptions FakeQuantOptions
PackOptions LogicalOrOptions OneHotOptions LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions
SquareOptions ZerosLikeOptions FillOptions BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions
UnidirectionalSequenceLSTMOptions FloorModOptions RangeOptions ResizeNearestNeighborOptions LeakyReluOptions
SquaredDifferenceOptions MirrorPadOptions AbsOptions SplitVOptions UniqueOptions ReverseV2Options AddNOptions
GatherNdOptions CosOptions WhereOptions RankOptions ReverseSequenceOptions MatrixDiagOptions QuantizeOptions
MatrixSetDiagOptions HardSwishOptions IfOptions WhileOptions DepthToSpaceOptions NonMaxSuppressionV4Options
NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions BatchMatMulOptions
CumsumOptions CallOnceOptions BroadcastToOptions Rfft2dOptions Conv3DOptions HashtableOptions
HashtableFindOptions HashtableImportOptions HashtableSizeOptions VarHandleOptions ReadVariableOptions
AssignVariableOptions RandomOptions BucketizeOptions GeluOptions DynamicUpdateSliceOptions
UnsortedSegmentProdOptions UnsortedSegmentMaxOptions UnsortedSegmentMinOptions UnsortedSegmentSumOptions
ATan2Options SignOptions BitcastOptions BitwiseXorOptions RightShiftOptions
"""
"""Options of operators, by the union's number."""

_OPTIONS_2_UNION = """
NONE StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions
StablehloConvolutionOptions StablehloCustomCallOptions StablehloReduceOptions StablehloScatterOptions
StablehloCompareOptions StablehloDynamicSliceOptions StablehloPadOptions StablehloIotaOptions
StablehloDotGeneralOptions StablehloReduceWindowOptions StablehloSortOptions StablehloWhileOptions
StablehloGatherOptions StablehloTransposeOptions DilateOptions StablehloRngBitGeneratorOptions
ReduceWindowOptions StableHLOCompositeOptions StablehloShiftLeftOptions StablehloCaseOptions
"""
"""Options of the operators that came after the first union was full."""


SCHEMA = Schema(  # everything `flatbuffer.read_root` needs to read a model
    tables={name: rows(text) for name, text in (_MODEL | _OPTIONS | dict.fromkeys(_EMPTY.split(), "")).items()},
    unions={
        "BuiltinOptions": tuple(_OPTIONS_UNION.split()),
        "BuiltinOptions2": tuple(_OPTIONS_2_UNION.split()),
        "QuantizationDetails": ("NONE", "CustomQuantization", "BlockwiseQuantization", "MultiAxisQuantization"),
        "SparseIndexVector": ("NONE", "Int32Vector", "Uint16Vector", "Uint8Vector"),
    },
    enums={
        "ActivationFunctionType": "int8",
        "BuiltinOperator": "int32",
        "DimensionType": "int8",
        "FullyConnectedOptionsWeightsFormat": "int8",
        "LSTMKernelType": "int8",
        "MirrorPadMode": "int8",
        "Padding": "int8",
        "TensorType": "int8",
    },
)
