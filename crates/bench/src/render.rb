# Templates as ERB alone renders them: the first line has the templates, each other one the spec of an instance.
require 'json'
require 'erb'
require 'ostruct'

class Context
  attr_reader :index, :name

  def initialize(spec)
    @raw = spec
    @index = spec['index']
    @name = spec['name']
  end

  def spec
    @spec ||= struct(@raw)
  end

  def p(name, default = nil)
    found = name.split('.').inject(@raw['properties']) { |within, key| within && within[key] }
    found.nil? ? default : found
  end

  def if_p(*names)
    values = names.map { |name| p(name) }
    yield(*values) unless values.any?(&:nil?)
  end

  def get_binding
    binding
  end

  def struct(value)
    case value
    when Hash then OpenStruct.new(value.transform_values { |member| struct(member) })
    when Array then value.map { |item| struct(item) }
    else value
    end
  end
end

templates = JSON.parse($stdin.gets).map { |text| ERB.new(text, trim_mode: '-') }
$stdin.each_line do |line|
  spec = JSON.parse(line)
  texts = templates.map { |template| template.result(Context.new(Marshal.load(Marshal.dump(spec))).get_binding) }
  $stdout.puts(JSON.generate(texts))
  $stdout.flush
end
