package main

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
)

const (
	sliceZoom = 2 // screen pixels per voxel
	sliceGap  = 8 // screen pixels between the panels
)

// drawSlice writes a PNG of the middle plane along z: image, smoothed and labels side by side.
func drawSlice(path string, volume, smoothed voxels[uint8], labels voxels[int32]) error {
	z := volume.shape[0] / 2
	grey := func(v voxels[uint8]) func(y, x int) color.Color {
		return func(y, x int) color.Color { return color.Gray{Y: brighten(v.row(z, y)[x])} }
	}
	panels := []func(y, x int) color.Color{
		grey(volume),
		grey(smoothed),
		func(y, x int) color.Color { return labelColor(labels.row(z, y)[x]) },
	}

	height, width := volume.shape[1]*sliceZoom, volume.shape[2]*sliceZoom
	canvas := image.NewRGBA(image.Rect(0, 0, len(panels)*(width+sliceGap)-sliceGap, height))
	draw.Draw(canvas, canvas.Bounds(), image.White, image.Point{}, draw.Src)
	for i, pixel := range panels {
		left := i * (width + sliceGap)
		for y := range height {
			for x := range width {
				canvas.Set(left+x, y, pixel(y/sliceZoom, x/sliceZoom))
			}
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, canvas); err != nil {
		return err
	}
	return writeFile(path, file.Bytes())
}

// brighten is a square root (gamma 0.5): most nuclei are in the lower third of the range.
func brighten(value uint8) uint8 { return uint8(math.Round(math.Sqrt(float64(value) * 255))) }

// labelColor gives neighbouring numbers hues far apart: each is a golden angle (137.5 degrees) from the one before.
func labelColor(label int32) color.Color {
	if label == 0 {
		return color.Black
	}
	hue := math.Mod(float64(label)*137.50776, 360) / 60
	value := []float64{1, 0.75}[label/8%2]
	channel := func(shift float64) uint8 {
		k := math.Mod(shift+hue, 6)
		const saturation = 0.75
		return uint8(255 * value * (1 - saturation*max(0, min(k, 4-k, 1))))
	}
	return color.RGBA{R: channel(5), G: channel(3), B: channel(1), A: 255}
}
