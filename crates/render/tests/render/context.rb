# What BOSH gives a template, in a few lines: the cases are rendered with it where Ruby is at hand.
# Reads lines of JSON with "template" and "spec"; writes lines with "text", or "error" and "line".
require 'json'
require 'erb'
require 'ostruct'
require 'yaml'
require 'shellwords'
require 'base64'
require 'uri'
require 'ipaddr'

# JSON before 2.8 puts line feeds into empty arrays and maps; the one that BOSH has does not.
module Laid
  def pretty_generate(value, *)
    laid(value, '')
  end

  def laid(value, indent)
    inner = "#{indent}  "
    case value
    when Hash
      return '{}' if value.empty?

      "{\n#{value.map { |k, v| "#{inner}#{JSON.generate(k.to_s)}: #{laid(v, inner)}" }.join(",\n")}\n#{indent}}"
    when Array
      return '[]' if value.empty?

      "[\n#{value.map { |v| inner + laid(v, inner) }.join(",\n")}\n#{indent}]"
    else JSON.generate(value)
    end
  end
end
JSON.singleton_class.prepend(Laid) if Gem::Version.new(JSON::VERSION) < Gem::Version.new('2.8')

class Object
  def blank?
    respond_to?(:empty?) ? !!empty? : !self
  end

  def present?
    !blank?
  end

  def presence
    self if present?
  end
end

class String
  def blank?
    match?(/\A[[:space:]]*\z/)
  end
end

class Numeric
  def blank?
    false
  end
end

class UnknownProperty < StandardError
  attr_reader :name

  def initialize(name)
    @name = name
    super("Can't find property '#{name}'")
  end
end

class UnknownLink < StandardError
  def initialize(name)
    super("Can't find link '#{name}'")
  end
end

class SpecStruct < OpenStruct
  def methods(regular = true)
    regular ? super : to_h.keys
  end
end

class Inactive
  def else; end

  def else_if_p(*)
    self
  end

  def else_if_link(_)
    self
  end
end

class Active
  def initialize(context)
    @context = context
  end

  def else
    yield
  end

  def else_if_p(*names, &block)
    @context.if_p(*names, &block)
  end

  def else_if_link(name, &block)
    @context.if_link(name, &block)
  end
end

module Lookup
  def walk(within, name)
    return nil if within.nil?

    name.split('.').each do |key|
      within = within[key]
      return nil if within.nil?
    end
    within
  end

  def p(*args)
    names = Array(args[0])
    names.each do |name|
      found = walk(raw, name)
      return found unless found.nil?
    end
    return args[1] if args.length == 2

    raise UnknownProperty, names
  end

  def if_p(*names)
    values = names.map do |name|
      value = walk(raw, name)
      return Active.new(self) if value.nil?

      value
    end
    yield(*values)
    Inactive.new
  end
end

class Instance
  include Lookup
  attr_reader :name, :index, :id, :az, :address, :properties, :bootstrap

  def initialize(spec)
    %w[name index id az address properties bootstrap].each { |key| instance_variable_set("@#{key}", spec[key]) }
  end

  def raw
    @properties
  end
end

class Link
  include Lookup
  attr_reader :instances, :properties

  def initialize(spec)
    @spec = spec
    @instances = spec['instances'].map { |instance| Instance.new(instance) }
    @properties = spec['properties']
  end

  def raw
    @properties
  end

  def address(_criteria = {})
    @spec['address']
  end
end

class Context
  include Lookup
  attr_reader :spec, :properties, :raw_properties, :name, :index

  def initialize(spec)
    @name = spec['name']
    @index = spec['index']
    @spec = struct(spec, SpecStruct)
    @raw_properties = spec['properties'] || {}
    @properties = struct(@raw_properties, OpenStruct)
    @links = spec['links'] || {}
  end

  def raw
    @raw_properties
  end

  def struct(value, kind)
    case value
    when Hash then kind.new(value.transform_values { |member| struct(member, kind) })
    when Array then value.map { |item| struct(item, kind) }
    else value
    end
  end

  def link(name)
    found = walk(@links, name)
    raise UnknownLink, name if found.nil? || !found.key?('instances')

    Link.new(found)
  end

  def if_link(name)
    found = walk(@links, name)
    return Active.new(self) if found.nil? || !found.key?('instances')

    yield Link.new(found)
    Inactive.new
  end

  def get_binding
    binding
  end
end

$stdout.sync = true
$stdin.each_line do |line|
  request = JSON.parse(line)
  begin
    erb = ERB.new(request['template'], trim_mode: '-')
    erb.filename = 'app/t.erb'
    # A class of its own, so that methods which a template defines are gone with it.
    context = Class.new(Context).new(request['spec'])
    $stdout.puts JSON.generate('text' => erb.result(context.get_binding))
  rescue Exception => e
    at = (e.backtrace || []).find { |entry| entry.include?('app/t.erb') }
    $stdout.puts JSON.generate('error' => e.to_s, 'line' => at ? at.split(':')[1].to_i : 0, 'class' => e.class.name)
  end
end
